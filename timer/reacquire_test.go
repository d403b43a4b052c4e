package timer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A store that is down for all hosts returns while handlers run. From then on no run starts without
// a slot. Only handlers that began during the outage and found no slot exceed the limit, and their
// number never grows. No host starts a run while one of its own runs has no slot. The test counts
// the handlers themselves.
//
// Fails when gate.why and acquirer.decide do not check whether the timer is rejoining, when
// acquirer.reacquire attaches nothing, or when withoutSlot finds nothing.
func TestI1RejoinWithoutOverrun(t *testing.T) {
	for _, policy := range []timer.StoreDownPolicy{timer.StoreDownRunLocal, timer.StoreDownSkip} {
		for name, down := range outages {
			t.Run(fmt.Sprintf("%s/%s", policy, name), func(t *testing.T) {
				bubble(t, func(t *testing.T) { rejoin(t, policy, down) })
			})
		}
	}
}

func rejoin(t *testing.T, policy timer.StoreDownPolicy, down dlocktest.Fault) {
	const hosts, limit, perHost = 5, 3, 2
	f := newFleet(t)
	var mu sync.Mutex
	handlers := map[*timer.Run]int{} // the running handlers and their hosts
	back := false
	// count returns how many handlers are running, and how many of them have no slot.
	count := func() (running, without int) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for r := range handlers {
			if r.Degraded() {
				without++
			}
		}
		return len(handlers), without
	}
	for host := range hosts {
		f.start(timer.Config{}, timer.Timer{
			Name: "a", Schedule: schedule.Every(3 * time.Second), MaxConcurrency: limit,
			MaxPerTick: limit, MaxPerHost: perHost,
			OnStoreDown: policy,
			Run: func(ctx context.Context) error {
				defer f.watch.enter(ctx)()
				r, _ := timer.RunFromContext(ctx)
				mu.Lock()
				for other, its := range handlers {
					if back && its == host && other.Degraded() {
						t.Errorf("host %d starts a handler after the outage, while another one continues "+
							"without a slot",
							host)
					}
				}
				handlers[r] = host
				mu.Unlock()
				defer func() {
					mu.Lock()
					delete(handlers, r)
					mu.Unlock()
				}()
				return sleep(ctx, 40*time.Second)
			},
		})
	}
	time.Sleep(30 * time.Second)
	if n, _ := count(); n != limit {
		t.Errorf("%d handlers before the outage, the limit is %d", n, limit)
	}
	for _, h := range f.Hosts {
		h.Link.Inject(down)
	}
	most := 0
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		n, _ := count()
		most = max(most, n)
	}
	switch {
	case policy == timer.StoreDownSkip && most > limit:
		t.Errorf("%d handlers during the outage, the limit is %d", most, limit)
	case policy == timer.StoreDownRunLocal && most > hosts*perHost:
		t.Errorf("%d handlers during the outage, the bound is %d", most, hosts*perHost)
	case policy == timer.StoreDownRunLocal && most <= limit && down != dlocktest.Short:
		t.Errorf("%d handlers during the outage: too few to prove anything", most)
	}
	for _, h := range f.Hosts {
		h.Link.Heal()
	}
	// Every host notices by itself that the store is back. From then on it starts no run beyond the
	// limit.
	testkit.Eventually(t, 15*time.Second, "every host has found that the store is back", func() bool {
		for _, h := range f.Hosts {
			if !h.Status().Store.Up {
				return false
			}
		}
		return true
	})
	// With Short only renewals fail, so the store counts as back at the next renewal, which takes a
	// little more than TTL/10.
	if down == dlocktest.Short {
		time.Sleep(3 * time.Second)
	}
	_, began := count()
	mu.Lock()
	back = true
	mu.Unlock()
	before := began
	for range 12_000 {
		time.Sleep(10 * time.Millisecond)
		n, without := count()
		if without > before {
			t.Fatalf("%d handlers without a slot after the outage, and there were %d", without, before)
		}
		if n > limit+without {
			t.Fatalf("%d handlers after the outage, %d of them without a slot: the limit is %d", n, without, limit)
		}
		before = without
	}
	if policy == timer.StoreDownRunLocal && down != dlocktest.Short && (began == 0 || before != 0) {
		t.Errorf("%d handlers without a slot when the store was back, and %d two minutes later", began, before)
	}
	testkit.Eventually(t, time.Minute, "the limit is reached again", func() bool { n, _ := count(); return n == limit })
	for _, h := range f.Hosts {
		if err := h.StoreReachable(); err != nil {
			t.Error(err)
		}
	}
	f.Stop()
	f.watch.check(t)
}

// The only run of a host continued without the store. When the store is back, the run gets a slot
// and a fence and is valid again. After that it is like any other run: its context ends when the
// slot is finally lost.
//
// Fails when runner.attach does not watch the lease, leaves the run degraded, or counts no slot as
// held.
func TestReattachedRunIsAnOrdinaryOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		taken := &takenStore{DistributedLock: f.store}
		var run atomic.Pointer[timer.Run]
		var cause atomic.Value
		h := f.startOn(taken, timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute),
			Run: func(ctx context.Context) error {
				r, _ := timer.RunFromContext(ctx)
				run.Store(r)
				<-ctx.Done()
				cause.Store(context.Cause(ctx))
				return nil
			}})
		h.Link.Inject(dlocktest.Error(errors.New("down")))
		testkit.Eventually(t, time.Minute, "it runs", func() bool { return run.Load() != nil })
		r := run.Load()
		if r.Valid() || !r.Degraded() || r.Slot() != -1 || r.Fence() != 0 {
			t.Errorf("without the store: valid %v, degraded %v, slot %d, fence %d", r.Valid(), r.Degraded(), r.Slot(),
				r.Fence())
		}
		h.Link.Heal()
		testkit.Eventually(t, 15*time.Second, "it has a slot", func() bool { return r.Valid() })
		if st := h.Status().Timers[0]; r.Degraded() || r.Slot() != 0 || r.Fence() == 0 || st.Fallback ||
			len(st.Running) != 1 || !st.Running[0].Valid {
			t.Errorf("after the outage: degraded %v, slot %d, fence %d, %+v", r.Degraded(), r.Slot(), r.Fence(), st)
		}
		if list, _ := f.store.List(t.Context(), "timer:a", 1); len(list) != 1 {
			t.Errorf("the store has %+v", list)
		}
		taken.all.Store(true)
		testkit.Eventually(t, 10*time.Second, "its context ends", func() bool { return cause.Load() != nil })
		if err, _ := cause.Load().(error); !errors.Is(err, dlock.ErrLost) || r.Valid() {
			t.Errorf("cause %v, valid %v", err, r.Valid())
		}
		taken.all.Store(false)
		f.Stop()
	})
}

// A slot that was acquired for a tick goes to a degraded run that began in the meantime.
//
// Fails when acquirer.decide does not call handOver.
func TestSlotThatComesLateGoesToTheRunWithoutOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(800 * time.Millisecond),
			MaxConcurrency: 2, MaxPerTick: 2, Run: f.handler(40 * time.Second)})
		// These are the two requests of the first tick, which take a second in total.
		h.Link.InjectN(2, dlocktest.Hang, dlocktest.OpAcquire)
		// This is the request of the second tick, 800 ms after the first.
		h.Link.InjectN(1, dlocktest.Slow(400*time.Millisecond), dlocktest.OpAcquire)
		running := func() []timer.RunInfo { return h.Status().Timers[0].Running }
		testkit.Eventually(t, 2*time.Second, "a run without a slot", func() bool {
			return len(running()) == 1 &&
				running()[0].Degraded
		})
		testkit.Eventually(t, 300*time.Millisecond, "it has a slot", func() bool {
			if len(running()) != 1 {
				t.Errorf("a run started while another had no slot: %+v", running())
			}
			return running()[0].Valid
		})
		if st := h.Status().Timers[0]; st.Skipped[timer.ReasonRejoining] != 1 {
			t.Errorf("%+v", st)
		}
		time.Sleep(2 * time.Second)
		if len(running()) != 2 {
			t.Errorf("later ticks did not start: %+v", running())
		}
		f.Stop()
		f.watch.check(t)
	})
}

// A run past its MaxRunTime gets no slot, and does not prevent others from starting.
//
// Fails when withoutSlot ignores the context.
func TestOverdueRunIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var calls atomic.Int64
		end := make(chan struct{})
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 2,
			MaxPerTick: 2,
			MaxRunTime: 20 * time.Second, Run: func(context.Context) error {
				if calls.Add(1) == 1 {
					<-end // the handler ignores its context
				}
				return nil
			}})
		h.Link.Inject(dlocktest.Error(errors.New("down")))
		time.Sleep(30 * time.Second)
		h.Link.Heal()
		time.Sleep(30 * time.Second)
		before := calls.Load()
		time.Sleep(10 * time.Second)
		if n := calls.Load() - before; n != 10 {
			t.Errorf("%d runs in 10 ticks", n)
		}
		if list, _ := f.store.List(t.Context(), "timer:a", 2); len(list) != 0 {
			t.Errorf("the overdue run has a slot: %+v", list)
		}
		close(end)
		f.Stop()
	})
}
