package timer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// While the store is down, two hundred timers do not call it. Only one probe per host does, after
// pauses that grow. After three consecutive answers, ticks call the store again.
//
// Fails when acquirer.submit does not check the breaker, or when the pauses do not grow.
func TestBreaker(t *testing.T) {
	for name, down := range map[string]dlocktest.Fault{"hangs": dlocktest.Hang,
		"refuses": dlocktest.Error(errors.New("refused"))} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				link := dlocktest.NewFaulty(f.store)
				store := &countingLock{DistributedLock: link}
				var timers []timer.Timer
				var ran atomic.Int64
				for i := range 100 {
					timers = append(timers, timer.Timer{Name: fmt.Sprint("timer ", i),
						Schedule: schedule.Every(time.Second),
						Run:      func(context.Context) error { ran.Add(1); return nil }})
				}
				h := f.startOn(store, timer.Config{}, timers...)
				time.Sleep(5 * time.Second)
				link.Inject(down)
				time.Sleep(5 * time.Second)
				if st := h.Status().Store; !st.BreakerOpen || st.Up {
					t.Errorf("after 5 s without the store: %+v", st)
				}
				if h.StoreReachable() == nil {
					t.Error("StoreReachable does not report the outage")
				}
				store.calls.Store(0)
				store.most.Store(0)
				ran.Store(0)
				time.Sleep(time.Minute)
				// The pauses are 5 s ± half, and a lost request is sent twice.
				if n := store.calls.Load(); n < 8 || n > 50 {
					t.Errorf("%d calls to a store that is down, in a minute", n)
				}
				if n := store.most.Load(); n > 1 {
					t.Errorf("%d calls to it at once", n)
				}
				if n := ran.Load(); n < 5_900 {
					t.Errorf("%d runs without the store, want 6,000", n)
				}
				link.Heal()
				for began := time.Now(); !h.Status().Store.Up; time.Sleep(50 * time.Millisecond) {
					if st := h.Status().Store; st.Err == "" && st.BreakerOpen && h.StoreReachable() == nil {
						t.Error("reachable while the breaker is open")
					}
					if time.Since(began) > 15*time.Second {
						t.Fatal("the store is not called again")
					}
				}
				if err := h.StoreReachable(); err != nil {
					t.Error(err)
				}
				f.Stop()
			})
		})
	}
}

// One or two failures do not open the breaker, nor does any number of refusals.
//
// Fails when breaker.saw opens the breaker at the first failure.
func TestSingleFailureDoesNotOpenTheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(10 * time.Second),
			Run: f.handler(0)})
		time.Sleep(20 * time.Second)
		h.Link.InjectN(3, dlocktest.Error(errors.New("a hiccup")), dlocktest.OpAcquire) // an acquire is sent twice
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if h.Status().Store.BreakerOpen || h.StoreReachable() != nil {
				t.Fatalf("open after a hiccup: %+v", h.Status().Store)
			}
		}
		f.Stop()
	})
}

// A host notices an outage and its end, although nothing is due. Started succeeds on a host that
// starts during the outage.
//
// Fails when nothing probes the store, or when Started waits for a store that answers.
func TestProbeFindsOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{}, timer.Timer{Name: "a", Run: f.handler(0)})
		if h.Started() == nil {
			t.Error("started before Run")
		}
		h.Link.Inject(dlocktest.Hang)
		f.Run(t.Context(), h)
		synctest.Wait()
		if h.Started() == nil {
			t.Error("started before the store has been called")
		}
		testkit.Eventually(t, 1500*time.Millisecond, "the host has started", func() bool { return h.Started() == nil })
		testkit.Eventually(t, 15*time.Second, "the store is found to be down",
			func() bool { return h.StoreReachable() != nil })
		h.Link.Heal()
		testkit.Eventually(t, 15*time.Second, "the store is found to be back", func() bool {
			return h.StoreReachable() == nil &&
				h.Status().Store.Up
		})
		time.Sleep(time.Hour)
		h.Link.Inject(dlocktest.Error(errors.New("NOPERM")), dlocktest.OpAcquire) // renewals still work
		testkit.Eventually(t, 30*time.Second, "the store is found not to grant",
			func() bool { return h.StoreReachable() != nil })
		h.Link.Heal()
		testkit.Eventually(t, 15*time.Second, "the store is found to grant",
			func() bool { return h.StoreReachable() == nil })
		f.Stop()
		for _, name := range []string{"tickslot:hosts", "tickslot:probe:0"} {
			for _, slots := range []int{0, driver.MaxSlots} {
				if list, _ := f.store.List(t.Context(), name, slots); len(list) != 0 {
					t.Errorf("%s is still held: %+v", name, list)
				}
			}
		}
	})
}

// A host knows how many hosts share the store. From that number it computes how many runs may be in
// progress without the store.
//
// Fails when the prober does not count again, or when a host does not keep its slot of
// tickslot:hosts.
func TestHostsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 4 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 3,
				MaxPerTick: 3,
				MaxPerHost: 2, Run: f.handler(0)})
		}
		time.Sleep(2 * time.Minute)
		for _, h := range f.Hosts {
			if st := h.Status(); st.Hosts != 4 || st.Timers[0].EffectiveLimit != 3 {
				t.Errorf("%d hosts, want 4; bound %d, want 3", st.Hosts, st.Timers[0].EffectiveLimit)
			}
		}
		f.Hosts[3].Link.Inject(dlocktest.Hang) // from then on like a dead host
		time.Sleep(2 * time.Minute)
		for i, h := range f.Hosts {
			hosts, bound := 3, 3
			if i == 3 {
				hosts, bound = 4, 8 // the values from before the outage
			}
			if st := h.Status(); st.Hosts != hosts || st.Timers[0].EffectiveLimit != bound {
				t.Errorf("host %d: %d hosts, want %d; bound %d, want %d", i, st.Hosts, hosts,
					st.Timers[0].EffectiveLimit, bound)
			}
		}
		f.Hosts[3].Link.Heal()
		f.Stop()
	})
}

// LeasesRenewed fails because of a late renewal before a lease is lost.
//
// Fails when RenewalLateness uses the end of the lease, or the time until the next heartbeat.
func TestLateRenewalShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute),
			Run: f.handler(50 * time.Second)})
		testkit.Eventually(t, time.Minute, "it runs", func() bool { return len(h.Status().Timers[0].Running) == 1 })
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if err := h.LeasesRenewed(); err != nil {
				t.Fatal(err)
			}
		}
		h.Link.Inject(dlocktest.Hang, dlocktest.OpExtend)
		testkit.Eventually(t, 12*time.Second, "it is late", func() bool { return h.LeasesRenewed() != nil })
		if !h.Status().Timers[0].Running[0].Valid {
			t.Error("it was reported only when the slot was lost")
		}
		h.Link.Heal()
		testkit.Eventually(t, 5*time.Second, "it is renewed", func() bool { return h.LeasesRenewed() == nil })
		f.Stop()
	})
}
