package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Valid runs never exceed MaxConcurrency in the fleet. The runs of five hosts take longer than the
// interval, so the limit is reached and every further tick is refused.
//
// Fails when acquirer.acquire asks for slots()+1.
func TestI1ValidRunsNeverExceedMaxConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 5 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 3,
				MaxPerTick: 3,
				MaxRunTime: time.Minute,
				Run:        f.handler(2700 * time.Millisecond)})
		}
		time.Sleep(10 * time.Minute)
		f.Stop()
		f.watch.check(t)
		if peak := f.watch.peak["a"]; peak != 3 {
			t.Errorf("%d runs at once, want exactly 3", peak)
		}
	})
}

// When a run loses its lease, Valid is false and its context has ended before another host can
// start a run in its slot. The host is cut off from the store, and the policy is StoreDownSkip.
//
// Fails when runner.lost does not cancel the run, which then never ends.
func TestI2LostRunEndsBeforeItsSlotIsGranted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var lastValid, ended, cause atomic.Value
		run := func(ctx context.Context) error {
			defer f.watch.enter(ctx)()
			r, _ := timer.RunFromContext(ctx)
			for ctx.Err() == nil {
				if r.Valid() {
					lastValid.Store(time.Now())
				}
				time.Sleep(10 * time.Millisecond)
			}
			ended.Store(time.Now())
			cause.Store(context.Cause(ctx))
			return nil
		}
		work := timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
			Run: run}
		first := f.start(timer.Config{}, work)
		testkit.Eventually(t, 5*time.Second, "the first host runs",
			func() bool { return len(first.Status().Timers[0].Running) == 1 })
		taken := make(chan time.Time, 1)
		second := work
		second.Run = func(ctx context.Context) error {
			defer f.watch.enter(ctx)()
			select {
			case taken <- time.Now():
			default:
			}
			return nil
		}
		f.start(timer.Config{}, second)
		first.Link.Inject(dlocktest.Hang)
		at := <-taken
		if ended.Load() == nil {
			t.Fatalf("the slot was granted at %v; valid until %v, and its context did not end", at, lastValid.Load())
		}
		if !ended.Load().(time.Time).Before(at) || !lastValid.Load().(time.Time).Before(at) {
			t.Errorf("the slot was granted at %v; valid until %v, and its context ended at %v", at, lastValid.Load(),
				ended.Load())
		}
		if !errors.Is(cause.Load().(error), dlock.ErrLost) {
			t.Errorf("cause %v, want one that matches dlock.ErrLost", cause.Load())
		}
		first.Link.Heal()
		f.Stop()
		f.watch.check(t)
	})
}

// No tick starts more than MaxPerTick runs in the fleet, although the jobs are short and the hosts
// try the tick at different times. gocron with a Redis lock runs 5 such ticks 14 times.
//
// Fails when acquirer.acquire claims no tick (TryAcquire instead of TryAcquireTick).
func TestI3TickStartsAtMostMaxPerTick(t *testing.T) {
	for _, most := range []int{1, 2, timer.NoLimit} {
		t.Run(fmt.Sprint(min(most, 99)), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				for range 3 {
					h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(2 * time.Second),
						MaxConcurrency: 5, MaxPerTick: most,
						Run: f.handler(50 * time.Millisecond)})
					// The hosts reach the store at different times, so each job is over before the
					// next host's call.
					h.Link.Inject(dlocktest.Slow(time.Duration(len(f.Hosts))*100*time.Millisecond), dlocktest.OpAcquire)
				}
				time.Sleep(100 * 2 * time.Second)
				f.Stop()
				f.watch.check(t)
				want := 3
				if most != timer.NoLimit {
					want = min(most, want)
				}
				if ran, starts := f.watch.ticks("a"); starts != want || ran != 100 {
					t.Errorf("%d ticks ran, with up to %d starts each; want 100 with %d", ran, starts, want)
				}
			})
		})
	}
}

// Fences of a slot increase from run to run, whichever host runs it. The watcher compares each
// fence with the previous one.
//
// Fails when Run.Fence is a constant, or when the store does not increment it.
func TestI4FencesGrowFromRunToRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 3 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond),
				MaxConcurrency: 2, MaxPerTick: 2, Run: f.handler(30 * time.Millisecond)})
		}
		time.Sleep(time.Minute)
		f.Stop()
		f.watch.check(t)
		if len(f.watch.fences) != 2 {
			t.Errorf("%d slots were used, want 2", len(f.watch.fences))
		}
	})
}

// The slot of a host that was killed can be granted within one TTL of its last extend, whatever its
// MaxRunTime.
//
// Fails when the lease is as long as MaxRunTime.
func TestI6KilledHostsSlotComesBackWithinTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		config := timer.Config{TTL: 6 * time.Second, StoreTimeout: 500 * time.Millisecond}
		work := timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond), MaxRunTime: 3 * time.Hour,
			OnStoreDown: timer.StoreDownSkip,
			Run:         f.handler(2 * time.Hour)}
		killed := f.start(config, work)
		testkit.Eventually(t, time.Second, "the first host runs",
			func() bool { return len(killed.Status().Timers[0].Running) == 1 })
		time.Sleep(time.Minute)
		// From now on nothing from the killed host reaches the store, not even a release.
		killed.Link.Inject(dlocktest.Error(errors.New("dead")))
		cut := time.Now()
		other := f.start(config, work)
		testkit.Eventually(t, time.Minute, "the slot comes back",
			func() bool { return len(other.Status().Timers[0].Running) == 1 })
		if took := time.Since(cut); took > 6*time.Second+200*time.Millisecond {
			t.Errorf("the slot came back after %v, TTL 6s", took)
		}
		f.watch.check(t)
		killed.Link.Heal()
		f.Hosts[0].Cancel()
		f.Hosts[1].Cancel()
		f.Hosts[0].Wait()
		f.Hosts[1].Wait()
	})
}

// Every due tick is counted exactly once: as a start, or as a skip with its reason. The timers meet
// every reason to skip: the local limit, full slots, taken ticks, a store that fails at random, and
// draining. For late hosts, quarantine and queued ticks, see TestI9… in gate_test.go.
//
// Fails when nextCall drops a tick.
func TestI9EveryTickIsAccountedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var timers []timer.Timer
		for i := range 100 { // more than the attempts that are allowed at the same time
			policy := timer.StoreDownRunLocal
			if i%2 == 0 {
				policy = timer.StoreDownSkip
			}
			timers = append(timers, timer.Timer{
				Name: fmt.Sprint(i), Schedule: schedule.Every(time.Duration(1+i%7) * 300 * time.Millisecond),
				MaxConcurrency: 1 + i%3, MaxPerTick: 1 + i%3, OnStoreDown: policy,
				Run: f.handler(time.Duration(i) * 20 * time.Millisecond),
			})
		}
		starts := time.Now()
		for range 3 {
			f.start(timer.Config{DrainTimeout: time.Second}, timers...)
		}
		faults := []dlocktest.Fault{dlocktest.Hang, dlocktest.LostReply, dlocktest.Slow(700 * time.Millisecond),
			dlocktest.Error(errors.New("refused"))}
		for i := range testkit.Rounds(t, 6, 24) {
			h := f.Hosts[i%len(f.Hosts)]
			h.Link.Inject(faults[rand.IntN(len(faults))])
			time.Sleep(3 * time.Second)
			h.Link.Heal()
			time.Sleep(2 * time.Second)
		}
		ends := time.Now()
		f.Stop()
		for i, h := range f.Hosts {
			for _, st := range h.Status().Timers {
				if timertest.Unaccounted(st) != 0 {
					t.Errorf("host %d, timer %s: %d ticks, but %d started, skipped %v", i, st.Name, st.Ticks,
						st.Started, st.Skipped)
				}
				var period time.Duration
				for _, tm := range timers {
					if tm.Name == st.Name {
						period = gap(tm.Schedule)
					}
				}
				if want := uint64(ends.Sub(starts) / period); st.Ticks < want || st.Ticks > want+1 {
					t.Errorf("host %d, timer %s: %d ticks, want about %d", i, st.Name, st.Ticks, want)
				}
			}
		}
		f.watch.check(t)
	})
}

func gap(s schedule.Schedule) time.Duration {
	first := s.Next(time.Now())
	return s.Next(first).Sub(first)
}

// A handler that panics, returns an error, blocks, exits its goroutine or ignores its context
// affects neither the scheduler nor another timer.
//
// Fails when carryOut does not recover, when the cleanup is not deferred, or when a run is called
// in the scheduling goroutine.
func TestI10BadHandlersHarmNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		forever := make(chan struct{})
		every := schedule.Every(time.Second)
		h := f.start(timer.Config{DrainTimeout: time.Second},
			timer.Timer{Name: "panics", Schedule: every, Run: func(context.Context) error { panic("boom") }},
			timer.Timer{Name: "errs", Schedule: every,
				Run: func(context.Context) error { return errors.New("no luck") }},
			timer.Timer{Name: "exits", Schedule: every,
				Run: func(context.Context) error { runtime.Goexit(); return nil }},
			timer.Timer{Name: "blocks", Schedule: every, MaxRunTime: time.Second,
				Run: func(context.Context) error { <-forever; return nil }},
			timer.Timer{Name: "good", Schedule: every, Run: f.handler(10 * time.Millisecond)},
		)
		time.Sleep(100*time.Second + 500*time.Millisecond)
		st := map[string]timer.TimerStatus{}
		for _, s := range h.Status().Timers {
			st[s.Name] = s
		}
		for name, outcome := range map[string]timer.Outcome{"panics": timer.OutcomePanicked,
			"errs": timer.OutcomeFailed, "exits": timer.OutcomeFailed, "good": timer.OutcomeOK} {
			if st[name].Started < 99 || st[name].Last == nil || st[name].Last.Outcome != outcome {
				t.Errorf("%s: %d runs, last %+v; want 100 and %s", name, st[name].Started, st[name].Last, outcome)
			}
		}
		if r := st["blocks"].Running; len(r) != 1 || !r[0].Overdue || r[0].Valid {
			t.Errorf("blocks: running %+v, want one that is overdue and, its slot not renewed, invalid", r)
		}
		if n := st["blocks"].Skipped[timer.ReasonHostFull]; n < 98 {
			t.Errorf("blocks: %d ticks met the local limit: a run that ignores its context must keep its place", n)
		}
		h.Cancel()
		err := h.Wait()
		if stuck, ok := errors.AsType[*timer.StuckError](err); !ok || !slices.Equal(stuck.Timers, []string{"blocks"}) {
			t.Errorf("Run returned %v, want a StuckError that names blocks", err)
		}
		close(forever)
	})
}

// If more timers are due at the same time than attempts are allowed, the others wait in the queue,
// and no tick is lost.
//
// Fails when nextCall starts nothing, or when call ignores maxInFlight.
func TestAttemptsInFlightAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var timers []timer.Timer
		at := once(time.Now().Add(time.Second))
		for i := range 500 {
			timers = append(timers, timer.Timer{Name: fmt.Sprint(i), Schedule: at, Run: f.handler(0)})
		}
		slow := &countingLock{DistributedLock: f.store, delay: 100 * time.Millisecond}
		s, err := timer.New(timer.Config{Store: slow}, timers...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(5 * time.Second)
		for _, st := range s.Status().Timers {
			if st.Started != 1 {
				t.Fatalf("timer %s: started %d, skipped %v", st.Name, st.Started, st.Skipped)
			}
		}
		if most := slow.most.Load(); most != 64 {
			t.Errorf("%d attempts at once, want 64", most)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A countingLock counts the acquires of a name, and how many of them are in flight at the same
// time.
type countingLock struct {
	dlock.DistributedLock
	name             string        // "" counts every name
	delay            time.Duration // before each acquire is passed on
	calls, now, most atomic.Int64
}

func (c *countingLock) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if c.name == "" || c.name == req.Name {
		c.calls.Add(1)
		now := c.now.Add(1)
		defer c.now.Add(-1)
		for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
		}
		time.Sleep(c.delay)
	}
	return c.DistributedLock.TryAcquire(ctx, req)
}

// once is a schedule with a single tick.
type once time.Time

func (o once) Next(t time.Time) time.Time {
	if t.Before(time.Time(o)) {
		return time.Time(o)
	}
	return time.Time{}
}
