package timer

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// A foreign is a store, and an error of that store. When its methods are called, it reports which
// mutexes are held. The test calls one function at a time, so only the caller can hold one.
type foreign struct {
	*memlock.Store
	t       *testing.T
	fails   atomic.Bool
	what    error // what the error matches: dlock.ErrSetup, dlock.ErrFault, or neither
	mutexes map[string]*sync.Mutex

	mu    sync.Mutex
	calls map[string]int
}

func (f *foreign) called(method string) {
	f.mu.Lock()
	f.calls[method]++
	f.mu.Unlock()
	for name, mu := range f.mutexes {
		if mu.TryLock() {
			mu.Unlock()
			continue
		}
		f.t.Errorf("%s is called while %s is held:\n%s", method, name, debug.Stack())
	}
}

func (f *foreign) Shard(name string) string {
	f.called("Shard")
	return "the only one"
}

func (f *foreign) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if f.fails.Load() {
		return driver.Grant{}, f
	}
	return f.Store.TryAcquire(ctx, req)
}

func (f *foreign) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if f.fails.Load() {
		return nil, f
	}
	return f.Store.Extend(ctx, ttl, grants...)
}

func (f *foreign) Error() string        { f.called("Error"); return "it fails" }
func (f *foreign) Is(target error) bool { f.called("Is"); return target == f.what }
func (f *foreign) As(any) bool          { f.called("As"); return false }

// A store's Shard, and the methods of its errors, are user code. They may block or call the
// Scheduler.
//
// Fails when the storeWatch, the views, the acquirer or the runner calls one of them while holding
// a mutex.
func TestForeignCodeIsCalledWithoutAMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &foreign{Store: memlock.New(), t: t, calls: map[string]int{}}
		s, err := New(Config{Store: f, TTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Registerer: prometheus.NewRegistry()},
			Timer{Name: "a", Run: nothing})
		if err != nil {
			t.Fatal(err)
		}
		set := s.registry.get("a")
		begin := func() { s.runner.base = t.Context(); s.store.begin(t.Context()) }
		s.registry.begin(begin)
		w := s.store
		f.mutexes = map[string]*sync.Mutex{"storeWatch.mu": &w.mu, "entry.mu": &set.entry.mu,
			"registry.mu": &s.registry.mu, "lineLog.mu": &w.log.mu, "tickTimes.mu": &set.entry.ticks.mu}
		lease, err := s.session.Mutex("timer:a").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.fails.Store(true)
		time.Sleep(6 * time.Second) // the lease is lost, and heartbeats fail
		s.runner.lost(set, s.runner.newRun(tick{s: set}, false), lease)
		for _, f.what = range []error{nil, dlock.ErrFault, dlock.ErrSetup} {
			for range answers.OpenAfter {
				_, err := s.acquirer.acquire(t.Context(), tick{s: set})
				if _, failed := errors.AsType[*dlock.StoreError](err); !failed {
					t.Fatal(err)
				}
				w.recordAnswer(tick{s: set}, nil, err)
				w.called(dlock.StoreCall{Op: dlock.StoreOpExtend, Name: set.entry.lockName, Err: f})
			}
			newProber(w, s.session).notSetUpAtFirst(&dlock.StoreError{Op: dlock.StoreOpAcquire, Name: fleet.HostsLock,
				Err: f})
			w.isOpen(set)
			w.serves(set)
			w.notSetUp(set)
			w.bypass(set)
			w.status()
			_ = w.reachable()
		}
		w.breakers.whole = breaker{} // only the server of the timer is down
		s.waiting.inFlight = maxInFlight
		s.registry.enter(set, 1)
		set.entry.ticks.set(1, time.Time{})
		if now, why := s.waiting.call(tick{s: set, at: 1}); now || why != "" {
			t.Fatal("the tick does not wait", why)
		}
		s.acquirer.next()
		for range closeAfter {
			_ = w.recordAcquire(set.entry.lockName, nil)
		}
		w.log.flush()
		for _, method := range []string{"Shard", "Error", "Is", "As"} {
			if f.calls[method] == 0 {
				t.Errorf("%s is never called", method)
			}
		}
		f.fails.Store(false)
		_ = s.session.Close(context.Background())
	})
}

// A store's error whose methods panic is treated like any other failure of the store.
//
// Fails when errors.As is called on it without a guard.
func TestErrorOfTheStoreWhoseMethodsPanic(t *testing.T) {
	err := &dlock.StoreError{Op: dlock.StoreOpAcquire, Name: "timer:a", Err: panics{}}
	if why, result := reasonOf(err), acquireResult(t.Context(), err); why != ReasonStoreDown || result != "error" {
		t.Errorf("%q, %q", why, result)
	}
}

type panics struct{}

func (panics) Error() string { panic(errors.New("no text")) }
func (panics) Is(error) bool { panic("no error") }
func (panics) As(any) bool   { panic("no type") }
