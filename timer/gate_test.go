package timer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// many returns n timers that are all due at the same time.
func many(n int, s schedule.Schedule, run func(context.Context) error) (timers []timer.Timer) {
	for i := range n {
		timers = append(timers, timer.Timer{Name: fmt.Sprint(i), Schedule: s, MaxConcurrency: 2,
			MaxPerTick: 2, Run: run})
	}
	return timers
}

// One host never has more than MaxPerHost runs, although the fleet has free slots.
//
// Fails when gate.why ignores MaxPerHost.
func TestMaxPerHostBoundsTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 2 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 5,
				MaxPerTick: 5,
				MaxPerHost: 2, Run: f.handler(10 * time.Second)})
		}
		time.Sleep(time.Minute)
		for _, h := range f.Hosts {
			if n := h.Status().Timers[0].Skipped[timer.ReasonHostFull]; n < 30 {
				t.Errorf("%d ticks met the local limit", n)
			}
		}
		f.Stop()
		if peak := f.watch.peak["a"]; peak != 4 {
			t.Errorf("%d runs at once, want two on each of two hosts", peak)
		}
	})
}

// A host that is late, because a schedule blocks or the machine stalls, tries only the latest tick
// and counts the others as missed.
//
// Fails when handleOne does not count the missed ticks, or when schedules.due returns the oldest
// tick.
func TestI9LateHostCountsWhatItMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		start := time.Now()
		blocks := scheduleFunc(func(at time.Time) time.Time {
			if since := time.Since(start); since >= 3*time.Second && since < 4*time.Second {
				time.Sleep(5500 * time.Millisecond)
			}
			return at.Truncate(time.Second).Add(time.Second)
		})
		h := f.start(timer.Config{},
			timer.Timer{Name: "blocks", Schedule: blocks, Run: f.handler(0)},
			timer.Timer{Name: "late", Schedule: schedule.Every(time.Second), Run: func(ctx context.Context) error {
				if r, _ := timer.RunFromContext(ctx); time.Since(r.Tick()) >= time.Second {
					t.Errorf("the run of %v started at %v: it is not the latest tick", r.Tick(), time.Now())
				}
				return nil
			}})
		time.Sleep(20 * time.Second)
		h.Stopped(t)
		if _, skipped := h.Accounted(t); skipped[timer.ReasonMissed] < 8 {
			t.Errorf("skipped %v, want about five missed ticks of each", skipped)
		}
		for _, st := range h.Status().Timers {
			if st.Ticks < 19 || st.Ticks > 20 {
				t.Errorf("%s: %d ticks in 20 s", st.Name, st.Ticks)
			}
		}
	})
}

// Ticks that wait for their turn when draining begins are skipped, and Run does not wait for them.
//
// Fails when Scheduler.drain does not empty the queue, or does not count the ticks in it.
func TestI9DrainAccountsForQueuedTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, many(500, once(time.Now().Add(time.Second)), f.handler(0))...)
		h.Link.Inject(dlocktest.Slow(100*time.Millisecond), dlocktest.OpAcquire)
		time.Sleep(1150 * time.Millisecond)
		if took := h.Stopped(t); took > 100*time.Millisecond { // only calls in progress may finish
			t.Errorf("Run returned after %v", took)
		}
		if started, skipped := h.Accounted(t); started != 128 || skipped[timer.ReasonDraining] != 372 {
			t.Errorf("%d started, skipped %v; want 128 started, which were claimed, and the rest draining", started,
				skipped)
		}
	})
}

// A tick that waits in the queue until the next tick of its timer is due is skipped, because the
// store would refuse it as late.
//
// Fails when nextCall tries it, or keeps its place.
func TestI9OvertakenTickIsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		first := time.Now().Add(time.Second)
		second := first.Add(150 * time.Millisecond)
		twice := scheduleFunc(func(at time.Time) time.Time {
			switch {
			case at.Before(first):
				return first
			case at.Before(second):
				return second
			}
			return time.Time{}
		})
		h := f.start(timer.Config{}, many(200, twice, func(ctx context.Context) error {
			if r, _ := timer.RunFromContext(ctx); r.Tick().Equal(first) && time.Since(second) > 100*time.Millisecond {
				t.Error("an overtaken tick ran")
			}
			return nil
		})...)
		h.Link.Inject(dlocktest.Slow(100*time.Millisecond), dlocktest.OpAcquire)
		time.Sleep(10 * time.Second)
		if started, skipped := h.Accounted(t); skipped[timer.ReasonStoreBusy] != 200-128 || started != 128+200 {
			t.Errorf("%d started, skipped %v; want 72 skipped, whose turn had not come, and all others started",
				started, skipped)
		}
		if took := h.Stopped(t); took != 0 {
			t.Errorf("Run returned after %v, although nothing was in progress", took)
		}
	})
}

// Remove also takes a timer's ticks out of the queue.
//
// Fails when Remove leaves them in the queue, or keeps their places.
func TestRemoveTakesTicksOutOfTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran atomic.Int64
		h := f.start(timer.Config{}, many(500, once(time.Now().Add(time.Second)),
			func(context.Context) error { ran.Add(1); return nil })...)
		h.Link.Inject(dlocktest.Slow(100*time.Millisecond), dlocktest.OpAcquire)
		time.Sleep(1050 * time.Millisecond)
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := h.Remove(ctx, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := ran.Load(); n > 64 {
			t.Errorf("%d runs started, though all timers were removed while the first 64 attempts were under way", n)
		}
		if took := h.Stopped(t); took != 0 {
			t.Errorf("Run returned after %v, although nothing was in progress", took)
		}
	})
}

// The schedule is user code and may call the scheduler, even to remove its own timer.
//
// Fails when runDue calls it while holding a mutex, or does not check current afterwards.
func TestScheduleMayCallTheScheduler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var self atomic.Pointer[host]
		var ran atomic.Int64
		due := time.Now().Add(time.Second)
		self.Store(f.start(timer.Config{}, timer.Timer{Name: "a",
			Schedule: scheduleFunc(func(at time.Time) time.Time {
				if !at.Before(due) {
					if err := self.Load().Remove(t.Context(), "a"); err != nil {
						t.Error(err)
					}
				}
				return at.Truncate(time.Second).Add(time.Second)
			}),
			Run: func(context.Context) error { ran.Add(1); return nil }}))
		time.Sleep(time.Minute)
		if n := ran.Load(); n != 0 {
			t.Errorf("it ran %d times after it was removed", n)
		}
		f.Stop()
	})
}

// A schedule that fails at run time stops only its own timer, and the failure is reported.
//
// Fails when setNext does not store the error, or when schedule.Next does not recover from a panic.
func TestI10BrokenScheduleStopsItsTimerOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		start := time.Now()
		h := f.start(timer.Config{},
			timer.Timer{Name: "bad", Run: f.handler(0), Schedule: scheduleFunc(func(at time.Time) time.Time {
				if at.Sub(start) >= 3*time.Second {
					panic("out of days")
				}
				return at.Truncate(time.Second).Add(time.Second)
			})},
			timer.Timer{Name: "good", Run: f.handler(0), Schedule: schedule.Every(time.Second)})
		time.Sleep(time.Minute)
		bad, _ := h.Status().Timer("bad")
		if bad.Started != 3 || !bad.Next.IsZero() || !strings.Contains(bad.ScheduleError, "out of days") {
			t.Errorf("%+v", bad)
		}
		if good, _ := h.Status().Timer("good"); good.Started < 59 || good.ScheduleError != "" {
			t.Errorf("%+v", good)
		}
		f.Stop()
	})
}

// During PreStopDelay the host is not ready, but ticks and triggers continue. After PreStopDelay no
// run starts.
//
// Fails when no run starts during PreStopDelay, or when Run only waits.
func TestPreStopDelayGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{PreStopDelay: 5 * time.Second},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "manual", Run: f.handler(0)})
		time.Sleep(10 * time.Second)
		before := h.Status().Timers[0].Started
		h.Cancel()
		time.Sleep(time.Second)
		if err := h.Ready(); err == nil || h.Status().Phase != timer.PhasePreStop {
			t.Errorf("ready: %v, phase %s", err, h.Status().Phase)
		}
		if err := h.Trigger(t.Context(), "manual"); err != nil {
			t.Error(err)
		}
		if took := h.Stopped(t); took != 4*time.Second {
			t.Errorf("Run returned after another %v", took)
		}
		if n := h.Status().Timers[0].Started - before; n != 5 {
			t.Errorf("%d ticks started in a PreStopDelay of 5 s", n)
		}
	})
}

// After draining has begun, no run starts unless the store has granted its slot. That applies to
// ticks that the store did not answer, and to Triggers. A tick that is granted during the drain
// does run, because its claim is used up: see TestRunThatStartsWhileDraining.
//
// Fails when acquirer.decide does not check the phase again after the store's answer, or when
// release does not release the slot.
func TestI8NothingStartsWhileDraining(t *testing.T) {
	for name, c := range map[string]struct {
		fault dlocktest.Fault
		runs  int
	}{"granted": {dlocktest.Slow(300 * time.Millisecond), 1}, "down": {dlocktest.Hang, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				run := func(ctx context.Context) error {
					if r, _ := timer.RunFromContext(ctx); r.Timer() != "tick" || c.runs == 0 {
						t.Errorf("%s started while draining", r.Timer())
					}
					return nil
				}
				h := f.start(timer.Config{},
					timer.Timer{Name: "tick", Schedule: once(time.Now().Add(time.Second)), Run: run},
					timer.Timer{Name: "manual", Run: run})
				if err := h.Trigger(t.Context(), "nobody"); !errors.Is(err, timer.ErrNoTimer) {
					t.Error(err)
				}
				h.Link.Inject(c.fault, dlocktest.OpAcquire)
				time.Sleep(time.Second)
				triggered := make(chan error, 1)
				go func() { triggered <- h.Trigger(t.Context(), "manual") }()
				time.Sleep(100 * time.Millisecond)
				h.Cancel()
				synctest.Wait()
				if err := h.Trigger(t.Context(), "manual"); !refused(err, timer.ReasonHostFull) &&
					!refused(err, timer.ReasonDraining) {
					t.Errorf("Trigger while draining: %v", err)
				}
				if took := h.Stopped(t); took > 2*time.Second {
					t.Errorf("Run returned after %v", took)
				}
				if err := <-triggered; !errors.Is(err, timer.ErrRefused) {
					t.Errorf("Trigger returned %v", err)
				}
				if started, skipped := h.Accounted(t); started != uint64(c.runs) || len(skipped) != 1-c.runs {
					t.Errorf("%d started, skipped %v", started, skipped)
				}
				for _, name := range []string{"tick", "manual"} {
					if list, _ := f.store.List(t.Context(), "timer:"+name, 1); len(list) != 0 {
						t.Errorf("%s: slot still held: %+v", name, list)
					}
				}
			})
		})
	}
}

// Live succeeds while Run drains for a long time, although the scheduling goroutine has ended.
//
// Fails when Scheduler.drain leaves the wake-up time of the scheduling goroutine set.
func TestLiveWhileDrainingForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{DrainTimeout: time.Hour}, timer.Timer{Name: "a", Run: f.handler(50 * time.Minute)})
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		h.Cancel()
		time.Sleep(40 * time.Minute)
		if err := h.Live(); err != nil || h.Status().Phase != timer.PhaseDraining {
			t.Errorf("phase %s: %v", h.Status().Phase, err)
		}
		f.Stop()
	})
}

// Before and after Run, Trigger is refused with ReasonNotRunning.
//
// Fails when Trigger does not check the phase.
func TestTriggerBeforeAndAfterRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, err := timer.New(timer.Config{}, timer.Timer{Name: "a", Run: nop})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Trigger(t.Context(), "a", timer.TriggerOptions{}); !refused(err, timer.ReasonNotRunning) {
			t.Errorf("before Run: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if _, err := s.Trigger(t.Context(), "a", timer.TriggerOptions{}); !refused(err, timer.ReasonNotRunning) {
			t.Errorf("after Run: %v", err)
		}
	})
}

// Trigger returns when its context ends while the store hangs. That counts neither as a failure of
// the store nor as a refusal.
//
// Fails when Trigger calls the store with another context or treats the end of the context as a
// refusal, or when the breaker counts it.
func TestTriggerEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Run: f.handler(0)})
		h.Link.Inject(dlocktest.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		began := time.Now()
		err := h.Trigger(ctx, "a")
		if took := time.Since(began); !errors.Is(err, context.Canceled) || errors.Is(err, timer.ErrRefused) ||
			took != 100*time.Millisecond {
			t.Errorf("Trigger returned %v after %v", err, took)
		}
		if st := h.Status(); st.Store.Err != "" || h.Degraded() != nil {
			t.Errorf("store %+v, degraded: %v", st.Store, h.Degraded())
		}
		h.Link.Heal()
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Errorf("its place was not freed: %v", err)
		}
		f.Stop()
	})
}

// Without a limit on starts per tick, no tick is claimed, because NoLimit exceeds the numbers that
// a store can count.
//
// Fails when acquirer.acquire claims a tick in spite of NoLimit, or for a triggered run.
func TestNoTickIsClaimedWithoutALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &ticksSeen{DistributedLock: f.store, seen: map[string]int{}}
		every := schedule.Every(time.Second)
		h := f.startOn(store, timer.Config{},
			timer.Timer{Name: "free", Schedule: every, MaxPerTick: timer.NoLimit, Run: f.handler(0)},
			timer.Timer{Name: "manual", Run: f.handler(0)},
			timer.Timer{Name: "plain", Schedule: every, MaxConcurrency: 3, MaxPerTick: 3, Run: f.handler(0)},
			timer.Timer{Name: "stated", Schedule: every, MaxConcurrency: 3, MaxPerTick: 2, Run: f.handler(0)})
		time.Sleep(10 * time.Second)
		if err := h.Trigger(t.Context(), "manual"); err != nil {
			t.Error(err)
		}
		f.Stop()
		want := map[string]int{"timer:plain": 3, "timer:stated": 2}
		if !maps.Equal(store.seen, want) {
			t.Errorf("starts allowed per tick, as the store received them: %v; want %v", store.seen, want)
		}
	})
}

type ticksSeen struct {
	dlock.DistributedLock
	mu   sync.Mutex
	seen map[string]int
}

func (s *ticksSeen) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Tick != nil {
		s.mu.Lock()
		s.seen[req.Name] = req.Tick.Max
		s.mu.Unlock()
	}
	return s.DistributedLock.TryAcquire(ctx, req)
}
