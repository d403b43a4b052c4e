package timer_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// threeServers is a store of three servers, a, b and c. The first letter of a timer's name
// determines its server. The locks that hosts keep for themselves are on b. For their other locks,
// the last digit determines the server.
type threeServers struct {
	*memlock.Store
	server map[string]*dlocktest.Faulty
}

func newThreeServers(store *memlock.Store) threeServers {
	s := threeServers{store, map[string]*dlocktest.Faulty{}}
	for _, name := range []string{"a", "b", "c"} {
		s.server[name] = dlocktest.NewFaulty(store)
	}
	return s
}

func (s threeServers) Shard(name string) string {
	if timer, ok := strings.CutPrefix(name, "timer:"); ok {
		return timer[:1]
	}
	if strings.Count(name, ":") == 3 {
		return string("abc"[name[len(name)-1]%3])
	}
	return "b"
}

func (s threeServers) of(name string) *dlocktest.Faulty { return s.server[s.Shard(name)] }

func (s threeServers) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return s.of(req.Name).TryAcquire(ctx, req)
}

func (s threeServers) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return s.of(grants[0].Name).Extend(ctx, ttl, grants...)
}

func (s threeServers) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.of(grants[0].Name).Release(ctx, grants...)
}

func (s threeServers) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	list := make([]driver.ControlState, len(names))
	for i, name := range names {
		one, err := s.of(name).Inspect(ctx, name)
		if err != nil {
			list[i].Err = err
			continue
		}
		list[i] = one[0]
	}
	return list, nil
}

// One of several servers hangs, possibly the one with the hosts' own slots. Timers on the other
// servers keep their limits, and the store is up. Timers on the failed server follow their
// OnStoreDown, make one call at a time to that server, and recover soon after it does.
//
// Fails when all servers share one breaker (it then opens for every timer), when the failure of one
// server counts for the store, or when nothing probes a server whose breaker is open.
func TestServerThatHangsCostsItsOwnTimers(t *testing.T) {
	for _, hung := range []string{"a", "b"} {
		t.Run(hung, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				store := newThreeServers(f.store)
				var timers []timer.Timer
				for i := range 30 {
					timers = append(timers, timer.Timer{Name: fmt.Sprintf("%c%d", "abc"[i%3], i),
						Schedule: schedule.Every(2 * time.Second), Run: f.handler(time.Second)})
				}
				for range 3 {
					f.startOn(store, timer.Config{}, timers...)
				}
				time.Sleep(20 * time.Second)
				f.watch.forget()
				store.server[hung].Inject(dlocktest.Hang)
				time.Sleep(3 * time.Second) // until its timers have noticed
				calls := store.server[hung].Calls(dlocktest.OpAcquire)
				time.Sleep(time.Minute)
				for _, h := range f.Hosts {
					st := h.Status()
					if err := h.StoreReachable(); err != nil || !st.Store.Up || st.Store.BreakerOpen {
						t.Errorf("one server of three hangs: %v, %+v", err, st.Store)
					}
					if fmt.Sprint(st.Store.ServersDown) != "["+hung+"]" {
						t.Errorf("servers %q are down, want %s", st.Store.ServersDown, hung)
					}
					for _, ts := range st.Timers {
						if on := ts.Name[:1]; ts.Fallback != (on == hung) {
							t.Errorf("%s, server %s hangs: without the store: %t", ts.Name, hung, ts.Fallback)
						}
					}
				}
				for _, tm := range timers {
					peak := f.watch.most(tm.Name)
					if on := tm.Name[:1]; on != hung && peak != 1 || on == hung && peak != 3 {
						t.Errorf("%s, server %s hangs: %d runs at once", tm.Name, hung, peak)
					}
					ran, _ := f.watch.ticks(tm.Name)
					if ran < 30 {
						t.Errorf("%s, server %s hangs: %d runs in a minute", tm.Name, hung, ran)
					}
				}
				// Each host probes the server every 3 3/4 to 5 s with two requests, in addition to
				// its heartbeat and its prober.
				if n := store.server[hung].Calls(dlocktest.OpAcquire) - calls; n < 3*2*10 || n > 3*2*30 {
					t.Errorf("%d acquires of a server that hangs in a minute, by 3 hosts", n)
				}
				store.server[hung].Heal()
				time.Sleep(15 * time.Second)
				f.watch.forget()
				time.Sleep(10 * time.Second)
				for _, h := range f.Hosts {
					if st := h.Status(); len(st.Store.ServersDown) != 0 || !st.Store.Up {
						t.Errorf("all servers answer: %+v", st.Store)
					}
				}
				for _, tm := range timers {
					if peak := f.watch.most(tm.Name); peak != 1 {
						t.Errorf("%s, all servers answer: %d runs at once", tm.Name, peak)
					}
				}
				f.Stop()
			})
		})
	}
}

// The store is down when none of its servers answers, and not before.
//
// Fails when the failure of one server counts for all, or when the prober probes only one server.
// Nothing else is due in this test.
func TestStoreOfSeveralServersIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := newThreeServers(f.store)
		h := f.startOn(store, timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(240 * time.Hour),
			Run: f.handler(0)})
		time.Sleep(time.Minute)
		store.server["b"].Inject(dlocktest.Hang)
		for range 300 {
			time.Sleep(time.Second)
			if err := h.StoreReachable(); err != nil {
				t.Fatalf("two servers answer: %v", err)
			}
		}
		store.server["a"].Inject(dlocktest.Hang)
		store.server["c"].Inject(dlocktest.Hang)
		testkit.Eventually(t, 2*time.Minute, "the store is found to be down",
			func() bool { return h.StoreReachable() != nil })
		store.server["a"].Heal()
		store.server["c"].Heal()
		testkit.Eventually(t, time.Minute, "two servers are found to answer",
			func() bool { return h.StoreReachable() == nil })
		store.server["b"].Heal()
		testkit.Eventually(t, time.Minute, "all servers are found to answer",
			func() bool { return len(h.Status().Store.ServersDown) == 0 })
		f.Stop()
	})
}

// A run that continued without its server gets a slot again when the server is back, although its
// timer is not due.
//
// Fails when acquirer.reacquire calls only servers whose breakers are closed.
func TestRunRejoinsAServerThatIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := newThreeServers(f.store)
		h := f.startOn(store, timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(24 * time.Hour),
			MaxRunTime: 4 * time.Hour, Run: f.handler(3 * time.Hour)})
		testkit.Eventually(t, 25*time.Hour, "it runs", func() bool { return len(h.Status().Timers[0].Running) == 1 })
		store.server["a"].Inject(dlocktest.Hang)
		testkit.Eventually(t, time.Minute, "it continues without the store",
			func() bool { return h.Status().Timers[0].Running[0].Degraded })
		time.Sleep(time.Minute)
		store.server["a"].Heal()
		testkit.Eventually(t, time.Minute, "it has a slot again",
			func() bool { return h.Status().Timers[0].Running[0].Valid })
		f.Stop()
	})
}

// forget makes the watcher count from now on.
func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peak, w.starts = maps.Clone(w.running), map[string]map[time.Time]int{}
}

// most returns the largest number of simultaneous runs of a timer.
func (w *watcher) most(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak[name]
}

// Once switched on, refusing answers every call with an incorrect setup, for every name.
type refusing struct {
	threeServers
	wrong atomic.Bool
	calls atomic.Int64
}

func (r *refusing) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	time.Sleep(time.Millisecond)
	r.calls.Add(1)
	if r.wrong.Load() {
		return driver.Grant{}, fmt.Errorf("%w: wrong password", dlock.ErrSetup)
	}
	return r.threeServers.TryAcquire(ctx, req)
}

func (r *refusing) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if r.wrong.Load() {
		return nil, fmt.Errorf("%w: wrong password", dlock.ErrSetup)
	}
	return r.threeServers.Extend(ctx, ttl, grants...)
}

// Several servers that are all set up incorrectly are called as rarely as one that is down, however
// long that lasts.
//
// Fails when the prober calls only the server of the hosts' own locks, and calls it again
// immediately because nothing is known about the others.
func TestServersSetUpWronglyAreRarelyAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &refusing{threeServers: newThreeServers(f.store)}
		var timers []timer.Timer
		for i := range 6 {
			timers = append(timers, timer.Timer{Name: fmt.Sprintf("%c%d", "abc"[i%3], i),
				Schedule: schedule.Every(2 * time.Second), Run: f.handler(time.Second)})
		}
		h := f.startOn(store, timer.Config{}, timers...)
		time.Sleep(20 * time.Second)
		store.wrong.Store(true)
		for range 12 {
			before := store.calls.Load()
			time.Sleep(10 * time.Second)
			if n := store.calls.Load() - before; n > 100 {
				t.Errorf("%d acquires in ten seconds of a store that is set up incorrectly", n)
			}
		}
		store.wrong.Store(false)
		testkit.Eventually(t, time.Minute, "the store serves again", func() bool {
			return h.StoreReachable() == nil &&
				len(h.Status().Store.ServersDown) == 0
		})
		f.Stop()
	})
}
