package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// outages are the ways in which a store can be down.
var outages = map[string]dlocktest.Fault{
	"hangs":   dlocktest.Hang,
	"refuses": dlocktest.Error(errors.New("connection refused")),
	"resets":  dlocktest.LostReply, // the call is applied, but the connection is gone
	"panics":  dlocktest.Panic,
	"short":   dlocktest.Short, // fewer answers than requests
	"slow":    dlocktest.Slow(1500 * time.Millisecond),
}

func eachOutage(t *testing.T, test func(t *testing.T, down dlocktest.Fault)) {
	for name, fault := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { test(t, fault) })
		})
	}
}

// Timers keep ticking if the store is down from the start, however it fails, and need no restart
// when it returns. With StoreDownRunLocal they run, degraded and not valid. With StoreDownSkip they
// do not run.
//
// Fails when views.recordDown ignores the policy, when a panic does not count as a failure, or when
// the session gives up after an error.
func TestI7StoreDownAtStart(t *testing.T) {
	eachOutage(t, func(t *testing.T, down dlocktest.Fault) {
		f := newFleet(t)
		var mu sync.Mutex
		ran := map[string][]bool{} // by timer: whether each run was valid
		record := func(ctx context.Context) error {
			r, _ := timer.RunFromContext(ctx)
			mu.Lock()
			defer mu.Unlock()
			if r.Degraded() && (r.Slot() != -1 || r.Fence() != 0) {
				t.Errorf("%s: a run without the store has slot %d, fence %d", r.Timer(), r.Slot(), r.Fence())
			}
			if r.Valid() == r.Degraded() {
				t.Errorf("%s: valid %v and degraded %v", r.Timer(), r.Valid(), r.Degraded())
			}
			ran[r.Timer()] = append(ran[r.Timer()], r.Valid())
			return nil
		}
		every := schedule.Every(2 * time.Second)
		for range 2 {
			h := f.start(timer.Config{},
				timer.Timer{Name: "local", Schedule: every, OnStoreDown: timer.StoreDownRunLocal, Run: record},
				timer.Timer{Name: "skip", Schedule: every, OnStoreDown: timer.StoreDownSkip, Run: record})
			h.Link.Inject(down)
		}
		time.Sleep(20 * time.Second)
		mu.Lock()
		if n := len(ran["local"]); n < 16 && down != dlocktest.Short { // two hosts, each on its own
			t.Errorf("StoreDownRunLocal started %d runs in 10 ticks of 2 hosts without the store", n)
		}
		if n := len(ran["skip"]); n > 0 && down != dlocktest.Short {
			t.Errorf("StoreDownSkip started %d runs without the store", n)
		}
		ran = map[string][]bool{}
		mu.Unlock()
		for _, h := range f.Hosts {
			if down != dlocktest.Short && h.Degraded() == nil {
				t.Error("Degraded does not report the store")
			}
			if st := h.Status().Store; down != dlocktest.Short && (st.Up || st.Err == "") {
				t.Errorf("the status of the store is %+v", st)
			}
			if err := h.Ready(); err != nil {
				t.Errorf("a store that is down made the host unready: %v", err)
			}
			h.Link.Heal()
		}
		time.Sleep(20 * time.Second) // until grants whose replies were lost have been released or have ended
		mu.Lock()
		ran = map[string][]bool{}
		mu.Unlock()
		time.Sleep(20 * time.Second)
		mu.Lock()
		for _, name := range []string{"local", "skip"} {
			if n := len(ran[name]); n != 10 {
				t.Errorf("%s: %d runs in 10 ticks after the store came back", name, n)
			}
			for _, valid := range ran[name] {
				if !valid {
					t.Errorf("%s: a run that is not valid after the store came back", name)
				}
			}
		}
		mu.Unlock()
		for _, h := range f.Hosts {
			if err := h.Degraded(); err != nil {
				t.Errorf("still degraded: %v", err)
			}
		}
		f.Stop()
	})
}

// The store fails during a run and returns. With StoreDownRunLocal the run continues, degraded.
// With StoreDownSkip it ends when its lease can no longer be trusted. In both cases it is no longer
// valid when the slot can be granted to another host.
//
// Fails when runner.lost does not treat silence as an outage, or ignores the policy.
func TestI7StoreDiesDuringARun(t *testing.T) {
	for _, policy := range []timer.StoreDownPolicy{timer.StoreDownRunLocal, timer.StoreDownSkip} {
		t.Run(policy.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var mu sync.Mutex
				var cause error
				ended := func() error {
					mu.Lock()
					defer mu.Unlock()
					return cause
				}
				work := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), OnStoreDown: policy,
					Run: func(ctx context.Context) error {
						defer f.watch.enter(ctx)()
						err := sleep(ctx, 50*time.Second)
						mu.Lock()
						cause = context.Cause(ctx)
						mu.Unlock()
						return err
					}}
				h := f.start(timer.Config{}, work)
				testkit.Eventually(t, time.Minute, "it runs",
					func() bool { return len(h.Status().Timers[0].Running) == 1 })
				h.Link.Inject(dlocktest.Hang)
				time.Sleep(15 * time.Second)
				synctest.Wait()
				running := h.Status().Timers[0].Running
				if policy == timer.StoreDownSkip {
					if len(running) != 0 || !errors.Is(ended(), dlock.ErrLost) {
						t.Errorf("the run continues: %+v, cause %v", running, ended())
					}
				} else if len(running) != 1 || running[0].Valid || !running[0].Degraded {
					t.Errorf("running %+v, want one, degraded and not valid", running)
				}
				h.Link.Heal()
				time.Sleep(80 * time.Second)
				synctest.Wait()
				if st := h.Status(); !st.Store.Up || st.Timers[0].Fallback || len(st.Timers[0].Running) != 1 ||
					!st.Timers[0].Running[0].Valid {
					t.Errorf("after the store came back: %+v", st)
				}
				if policy == timer.StoreDownRunLocal && ended() != nil {
					t.Errorf("the degraded run's context ended: %v", ended())
				}
				f.Stop()
				f.watch.check(t)
			})
		})
	}
}

// A loss without an outage (this host stalled, and its slot went to another) also ends the run with
// StoreDownRunLocal, because the store was not silent: it reported the loss.
//
// Fails when runner.lost ignores Silent.
func TestI2LossThatIsNoOutageEndsTheRunUnderRunLocal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var cause error
		taken := &takenStore{DistributedLock: f.store}
		s, err := timer.New(timer.Config{Store: taken, Logger: slog.New(slog.DiscardHandler)},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: func(ctx context.Context) error {
				err := sleep(ctx, 50*time.Second)
				cause = context.Cause(ctx)
				return err
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		testkit.Eventually(t, time.Minute, "it runs", func() bool { return len(s.Status().Timers[0].Running) == 1 })
		taken.all.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("cause %v, want a lost lease", cause)
		}
		if last := s.Status().Timers[0].Last; last == nil || last.Outcome != timer.OutcomeLeaseLost {
			t.Errorf("last run %+v, want outcome lease_lost", last)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// takenStore can report that every lease now belongs to another holder.
type takenStore struct {
	dlock.DistributedLock
	all atomic.Bool
}

func (s *takenStore) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	results, err := s.DistributedLock.Extend(ctx, ttl, grants...)
	for i := range results {
		if s.all.Load() {
			results[i].Outcome = driver.GrantLost
		}
	}
	return results, err
}

// "Not acquired" is an answer, so it never triggers the fallback.
//
// Fails when recordAnswer treats every error as a failure of the store.
func TestFullIsNotDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 2 {
			f.start(timer.Config{DrainTimeout: time.Second}, timer.Timer{Name: "a",
				Schedule: schedule.Every(time.Second), MaxRunTime: 30 * time.Minute, AlarmAfter: timer.NoLimit,
				Run: f.handler(20 * time.Minute)})
		}
		time.Sleep(10 * time.Minute)
		for _, h := range f.Hosts {
			if st := h.Status().Timers[0]; st.Fallback || h.Degraded() != nil {
				t.Errorf("fallback %v, degraded: %v", st.Fallback, h.Degraded())
			}
		}
		if f.watch.peak["a"] != 1 {
			t.Errorf("%d runs at once", f.watch.peak["a"])
		}
		f.Stop()
	})
}

// A change of the store's state is logged once, not once per tick.
//
// Fails when recordAcquire or storeWatch.called logs without a change, or when the start of the
// state is not recorded.
func TestOutageIsLoggedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		logger := slog.New(slog.NewTextHandler(&log, nil))
		h := f.start(timer.Config{Logger: logger},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				Run: f.handler(0)},
			timer.Timer{Name: "b", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(10 * time.Second)
		h.Link.Inject(dlocktest.Error(errors.New("refused")))
		down := time.Now()
		time.Sleep(time.Minute)
		if st := h.Status().Store; st.ChangedAt.Before(down) || st.ChangedAt.After(down.Add(2*time.Second)) {
			t.Errorf("down since %v, want %v", st.ChangedAt, down)
		}
		h.Link.Heal()
		time.Sleep(10 * time.Second)
		f.Stop()
		for line, want := range map[string]int{"does not answer": 1, "answers again": 1, "WARN": 1} {
			if n := strings.Count(log.String(), line); n != want {
				t.Errorf("%q logged %d times, want %d:\n%s", line, n, want, log.String())
			}
		}
	})
}

// A store that restarted refuses for a while. A tick that is refused for this reason is tried again
// afterwards if no later tick is due before. Otherwise a daily timer would lose its day.
//
// Fails when decide does not make the tick wait for the end of the quarantine.
func TestQuarantinedTickIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		quarantined := &quarantine{DistributedLock: f.store, until: time.Now().Add(time.Hour + 20*time.Second)}
		var ran []time.Duration
		start := time.Now()
		s, err := timer.New(timer.Config{Store: quarantined, Logger: slog.New(slog.DiscardHandler)},
			timer.Timer{Name: "daily", Schedule: once(start.Add(time.Hour)),
				Run: func(context.Context) error { ran = append(ran, time.Since(start)); return nil }},
			timer.Timer{Name: "frequent", Schedule: schedule.Every(10 * time.Second), Run: f.handler(0)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(2 * time.Hour)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(ran) != 1 || ran[0] < time.Hour+20*time.Second || ran[0] > time.Hour+21*time.Second {
			t.Errorf("the daily timer ran after %v, want once, after 1h20s", ran)
		}
		for _, st := range s.Status().Timers {
			if st.Ticks != st.Started+st.Skipped[timer.ReasonQuarantine] {
				t.Errorf("%s: %d ticks, %d started, skipped %v", st.Name, st.Ticks, st.Started, st.Skipped)
			}
		}
	})
}

type quarantine struct {
	dlock.DistributedLock
	until  time.Time
	silent bool // the refusal does not say when the quarantine ends
}

func (q *quarantine) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if left := time.Until(q.until); left > 0 {
		if q.silent {
			left = 0
		}
		return driver.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonQuarantine, ExpiresIn: left}
	}
	return q.DistributedLock.TryAcquire(ctx, req)
}

// Hosts with different limits report the difference, and keep to the larger limit.
func TestDisagreementAboutMaxConcurrencyShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for _, n := range []int{3, 5} {
			for range 3 {
				f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: n,
					MaxPerTick: n,
					Run:        f.handler(10 * time.Second)})
			}
		}
		time.Sleep(5 * time.Minute)
		var said int
		for _, h := range f.Hosts {
			if err := h.Degraded(); err != nil && strings.Contains(err.Error(), "MaxConcurrency") {
				said++
			}
		}
		if said == 0 {
			t.Error("no host noticed that the others have a different MaxConcurrency")
		}
		f.Stop()
		f.watch.check(t)
		if peak := f.watch.peak["a"]; peak > 5 {
			t.Errorf("%d runs at once, the larger limit is 5", peak)
		}
	})
}

// A store that can audit its server does so when it first answers, and when it answers again. Each
// of its warnings is logged at most once an hour, even if the numbers in it change. A note is
// logged at Info.
//
// Fails when storeWatch.saw does not call audit or calls it without a change, when warnings count
// as different because of their numbers, or when a warning is never logged again.
func TestAuditIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		link := dlocktest.NewFaulty(f.store)
		audited := &auditedStore{DistributedLock: link}
		s, err := timer.New(timer.Config{Store: audited, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		for range 2 {
			for range 5 {
				// Not Hang, because a call in flight would fail once more after Heal.
				link.Inject(dlocktest.Error(errors.New("refused")))
				time.Sleep(10 * time.Second)
				link.Heal()
				time.Sleep(10 * time.Second)
			}
			time.Sleep(time.Hour)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		told := func(what string) int { return strings.Count(log.String(), what) }
		if n := audited.n.Load(); n != 11 || told("redis-0:6379: it may evict") != 2 ||
			told("redis-1:6379: it may evict") != 2 || told("lags") != 2 ||
			told(`level=INFO msg="timer: note on the settings of the store"`) != 2 ||
			told(`note="postgres is a superuser"`) != 2 || told(`level=WARN msg="timer: the settings of the store`) != 6 {
			t.Errorf("looked %d times:\n%s", n, log.String())
		}
	})
}

type auditedStore struct {
	dlock.DistributedLock
	n atomic.Int64
}

func (s *auditedStore) Audit(context.Context) ([]string, error) {
	n := s.n.Add(1)
	return []string{driver.AuditNote + "postgres is a superuser", "redis-0:6379: it may evict",
		"redis-1:6379: it may evict",
		fmt.Sprintf("replica 10.0.0.7:6379 lags by %dm3.%ds, and %d bytes in %d rows", n, n, 100*n, n)}, nil
}
