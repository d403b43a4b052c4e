package timer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
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

// A thousand timers continue while the store hangs, because their ticks do not wait for it. Only
// one probe at a time calls the store. When the store answers, all runs are valid again.
//
// Fails when acquirer.submit ignores the breaker. Only 64 ticks a second would start.
func TestI7ThousandTimersGoOnWhileTheStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var local, skip, valid atomic.Int64
		counted := func(count *atomic.Int64) func(context.Context) error {
			return func(ctx context.Context) error {
				count.Add(1)
				if r, _ := timer.RunFromContext(ctx); r.Valid() {
					valid.Add(1)
				}
				return nil
			}
		}
		timers := many(1000, schedule.Every(10*time.Second), counted(&local))
		for i := range timers {
			if i%10 == 0 {
				timers[i].OnStoreDown, timers[i].Run = timer.StoreDownSkip, counted(&skip)
			}
		}
		h := f.start(timer.Config{}, timers...)
		h.Link.Inject(dlocktest.Hang)
		time.Sleep(5 * time.Second) // until the hosts have noticed
		local.Store(0)
		calls := h.Link.Calls(dlocktest.OpAcquire)
		time.Sleep(60 * time.Second)
		if n := local.Load(); n < 5400-900 {
			t.Errorf("%d runs in 5,400 ticks without the store", n)
		}
		if n := skip.Load(); n != 0 {
			t.Errorf("%d runs of timers that must skip", n)
		}
		if n := h.Link.Calls(dlocktest.OpAcquire) - calls; n > 2*60+10 {
			t.Errorf("the store was called %d times in a minute, want twice per StoreTimeout at most", n)
		}
		h.Link.Heal()
		time.Sleep(20 * time.Second)
		local.Store(0)
		skip.Store(0)
		valid.Store(0)
		time.Sleep(60 * time.Second)
		if n := local.Load() + skip.Load(); n != 6000 || valid.Load() != n {
			t.Errorf("after the store came back: %d runs in 6,000 ticks, %d of them valid", n, valid.Load())
		}
		f.Stop()
	})
}

// A fault in the key of one timer is not an outage for the other timers, and is logged once.
//
// Fails when recordAcquire treats every error as an outage.
func TestOneBadKeyIsNotAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		h := f.startOn(&faultyName{DistributedLock: f.store, name: "timer:bad"},
			timer.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			timer.Timer{Name: "bad", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				Run: f.handler(0)},
			timer.Timer{Name: "good", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				Run: f.handler(0)})
		time.Sleep(time.Minute)
		st := h.Status()
		f.Stop()
		if !st.Store.Up || st.Timers[0].Started != 0 || st.Timers[1].Started != 60 {
			t.Errorf("%+v", st)
		}
		if strings.Contains(log.String(), "does not answer") || strings.Count(log.String(), "does not run") != 1 {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

type faultyName struct {
	dlock.DistributedLock
	name string
}

func (s *faultyName) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Name == s.name {
		return driver.Grant{}, fmt.Errorf("%w: key %s holds a list", dlock.ErrFault, req.Name)
	}
	return s.DistributedLock.TryAcquire(ctx, req)
}

// The name of a removed timer whose runs are in progress can be registered again, and these runs
// count towards the limits of the new timer.
//
// Fails when Register does not look for the entry of a removed timer, or when hostLimit is compared
// only with the places of the new timer.
func TestI1RemovedTimersRunsCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		work := timer.Timer{Name: "a", LocalOnly: true, Run: f.handler(time.Minute)}
		h := f.start(timer.Config{}, work)
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Remove(ended, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("Remove returned %v", err)
		}
		if err := h.Register(work); err != nil {
			t.Error(err)
		}
		if err := h.Trigger(t.Context(), "a"); !refused(err, timer.ReasonHostFull) {
			t.Errorf("Trigger returned %v", err)
		}
		time.Sleep(time.Minute)
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// After Remove has returned, no run of the timer starts, not even for a tick whose call to the
// store was in progress.
//
// Fails when acquirer.decide does not check whether the timer was removed.
func TestNothingStartsAfterRemove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var runs atomic.Int64
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second),
			Run: func(context.Context) error { runs.Add(1); return nil }})
		h.Link.Inject(dlocktest.Slow(200 * time.Millisecond))
		before := h.Link.Calls(dlocktest.OpAcquire)
		testkit.Eventually(t, 3*time.Second, "an attempt is under way",
			func() bool { return h.Link.Calls(dlocktest.OpAcquire) == before+1 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.Remove(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Remove returned %v", err)
		}
		time.Sleep(time.Minute)
		if n := runs.Load(); n != 0 {
			t.Errorf("%d runs started after Remove had returned", n)
		}
		if list, _ := f.store.List(t.Context(), "timer:a", 1); len(list) != 0 {
			t.Errorf("the slot was not released: %+v", list)
		}
		f.Stop()
	})
}

// A log handler may call the scheduler. If it blocks, probes still answer.
//
// Fails when a line is logged with a mutex held.
func TestLoggersRunOutsideTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		calls := &callingHandler{Handler: slog.NewTextHandler(io.Discard, nil)}
		h := f.start(timer.Config{Logger: slog.New(calls)},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(30 * time.Second)},
			timer.Timer{Name: "b", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				Run: f.handler(0)})
		calls.scheduler.Store(h.Scheduler)
		time.Sleep(5 * time.Second)
		h.Link.Inject(dlocktest.Error(errors.New("down")))
		time.Sleep(30 * time.Second)
		h.Link.Heal()
		time.Sleep(10 * time.Second)
		if calls.n.Load() < 3 {
			t.Errorf("%d lines logged: too few to prove anything", calls.n.Load())
		}
		f.Stop()
	})
}

type callingHandler struct {
	slog.Handler
	scheduler atomic.Pointer[timer.Scheduler]
	n         atomic.Int64
}

func (h *callingHandler) Handle(context.Context, slog.Record) error {
	h.n.Add(1)
	if s := h.scheduler.Load(); s != nil {
		_, _, _ = s.Ready(), timertest.Degraded(s), s.Status()
	}
	return nil
}

// A Trigger whose context ends early does not count as a failure of the store.
func TestImpatientTriggerIsNotAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Run: f.handler(0)})
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		h.Link.Inject(dlocktest.Slow(200 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := h.Trigger(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Trigger returned %v", err)
		}
		if err := h.Degraded(); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// An error whose methods panic, such as a nil pointer of an error type, ends its run and affects
// nothing else.
//
// Fails when outcomeOf looks for a PanicError in the handler's error.
func TestI10TypedNilError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{},
			timer.Timer{Name: "nil", Schedule: schedule.Every(time.Second),
				Run: func(context.Context) error { var e *fs.PathError; return e }},
			timer.Timer{Name: "panic", Schedule: schedule.Every(time.Second),
				Run: func(context.Context) error { var e *timer.PanicError; return e }})
		time.Sleep(10 * time.Second)
		for _, st := range h.Status().Timers {
			if st.Started != 10 || st.Last.Outcome != timer.OutcomeFailed {
				t.Errorf("%+v", st)
			}
		}
		f.Stop()
	})
}

// The largest possible time as the next tick of a schedule means never, and does not cause a busy
// loop.
//
// Fails when schedule.Next accepts such years.
func TestFarFutureIsNever(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for i, last := range []time.Time{time.Unix(1<<63-62135596801, 999999999), time.Unix(1<<45, 0),
			time.Unix(1<<60, 0)} {
			soon := time.Now().Add(time.Second)
			h := f.start(timer.Config{}, timer.Timer{Name: fmt.Sprint(i), Run: f.handler(0),
				Schedule: scheduleFunc(func(t time.Time) time.Time {
					if t.Before(soon) {
						return soon
					}
					return last
				})})
			time.Sleep(2 * time.Second)
			if st := h.Status().Timers[0]; st.Started != 1 || !st.Next.IsZero() {
				t.Errorf("%v: %+v", last, st)
			}
			if err := f.New(scheduleFunc(func(time.Time) time.Time { return last })); err == nil ||
				!strings.Contains(err.Error(), "never fires") {
				t.Errorf("%v: %v", last, err)
			}
		}
		f.Stop()
	})
}

// New returns the error of timer.New for a timer with that schedule.
func (f *virtualFleet) New(s schedule.Schedule) error {
	_, err := timer.New(timer.Config{}, timer.Timer{Name: "x", Schedule: s, Run: f.handler(0)})
	return err
}

// A host with more due ticks than it can dispatch is busy, not stalled. Live succeeds, and Run ends
// when its context does.
//
// Fails when runDue does not check until, or when it reports its progress only at its end.
func TestOverloadedSchedulerEndsAndIsAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var slow atomic.Bool
		var timers []timer.Timer
		for i := range 20 {
			grid := schedule.Every(time.Second)
			timers = append(timers, timer.Timer{Name: fmt.Sprint(i), Run: nop,
				Schedule: scheduleFunc(func(t time.Time) time.Time {
					if slow.Load() {
						time.Sleep(200 * time.Millisecond) // an expensive schedule: one round takes four seconds
					}
					return grid.Next(t)
				})})
		}
		h := f.start(timer.Config{}, timers...)
		slow.Store(true)
		for range 25 {
			time.Sleep(time.Second)
			if err := h.Live(); err != nil {
				t.Fatal(err)
			}
		}
		h.Cancel()
		select {
		case <-h.Done():
			if err := h.Wait(); err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Run does not return")
		}
	})
}

// A store that cannot say when its quarantine ends is not called in a tight loop.
//
// Fails when waiting.refuse treats an unknown end as now.
func TestQuarantineOfUnknownLength(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		endless := &countingLock{delay: 100 * time.Millisecond, DistributedLock: &quarantine{DistributedLock: f.store,
			until: time.Now().Add(time.Hour), silent: true}}
		f.startOn(endless, timer.Config{}, timer.Timer{Name: "daily", Schedule: once(time.Now().Add(time.Second)),
			Run: nop})
		time.Sleep(60 * time.Second)
		f.Stop()
		if n := endless.calls.Load(); n < 10 || n > 61 {
			t.Errorf("called %d times in a minute, want about once a second", n)
		}
	})
}

// Hosts with different MaxPerTick together never start more runs of one tick than the larger
// number.
//
// Fails when acquirer.acquire claims no tick.
func TestI3HostsThatDisagreeKeepToTheLargerMaxPerTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for i := range 6 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(2 * time.Second),
				MaxConcurrency: 10, MaxPerTick: 2 + i%2,
				Run: f.handler(50 * time.Millisecond)})
		}
		time.Sleep(100 * 2 * time.Second)
		f.Stop()
		f.watch.check(t)
		if ran, most := f.watch.ticks("a"); ran != 100 || most != 3 {
			t.Errorf("%d ticks ran, with up to %d starts each; want 100 with 3", ran, most)
		}
	})
}
