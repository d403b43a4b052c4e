package timer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// Trigger respects MaxConcurrency and MaxPerHost but not MaxPerTick. It returns once the run has
// started or was refused.
func TestTrigger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		manual := timer.Timer{Name: "manual", MaxConcurrency: 2, MaxPerHost: 1, Run: f.handler(10 * time.Second)}
		var hosts []*host
		for range 3 {
			hosts = append(hosts, f.start(timer.Config{}, manual))
		}
		time.Sleep(time.Hour)
		if n := hosts[0].Status().Timers[0].Ticks; n != 0 {
			t.Errorf("a timer without a schedule was due %d times", n)
		}
		for _, h := range hosts[:2] {
			if err := h.Trigger(t.Context(), "manual"); err != nil {
				t.Error(err)
			}
			if err := h.Trigger(t.Context(), "manual"); !refused(err, timer.ReasonHostFull) {
				t.Errorf("second on one host: %v", err)
			}
		}
		err := hosts[2].Trigger(t.Context(), "manual")
		if !refused(err, timer.ReasonFull) || !errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("third in the fleet: %v", err)
		}
		time.Sleep(11 * time.Second)
		if err := hosts[2].Trigger(t.Context(), "manual"); err != nil {
			t.Error(err)
		}
		if err := hosts[2].Trigger(t.Context(), "nobody"); !errors.Is(err, timer.ErrNoTimer) {
			t.Errorf("unknown name: %v", err)
		}
		f.Stop()
		f.watch.check(t)
	})
}

func refused(err error, reason timer.Reason) bool {
	r, ok := errors.AsType[*timer.RefusedError](err)
	return ok && r.Reason == reason && errors.Is(err, timer.ErrRefused)
}

// A triggered run does not claim a tick.
func TestTriggerTakesNoTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute),
			Run: f.handler(time.Second)})
		for range 5 {
			if err := h.Trigger(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		if st := h.Status().Timers[0]; st.Ticks != 1 || st.Started != 1 {
			t.Errorf("%d ticks, %d started", st.Ticks, st.Started)
		}
		f.Stop()
	})
}

// Register and Remove work at run time. After Remove no run of the timer starts, and Remove waits
// for its runs.
//
// Fails when Register does not wake the loop, which sleeps for up to ten seconds, when Remove
// leaves ticks in the heap and takeDue does not check planned, or when Remove does not wait.
func TestRegisterAndRemoveWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{})
		time.Sleep(time.Minute + time.Second)
		if err := h.Register(timer.Timer{Name: "late", Schedule: schedule.Every(2 * time.Second),
			Run: f.handler(1500 * time.Millisecond)}); err != nil {
			t.Fatal(err)
		}
		if err := h.Register(timer.Timer{Name: "late", Run: f.handler(0)}); err == nil {
			t.Error("registered twice")
		}
		testkit.Eventually(t, 3*time.Second, "it runs", func() bool { return len(h.Status().Timers[0].Running) == 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := h.Remove(ctx, "late"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Remove did not wait, or not under its context: %v", err)
		}
		if err := h.Remove(t.Context(), "late"); !errors.Is(err, timer.ErrNoTimer) {
			t.Errorf("removed twice: %v", err)
		}
		ran, _ := f.watch.ticks("late")
		time.Sleep(time.Minute)
		if again, _ := f.watch.ticks("late"); again != ran {
			t.Error("it went on after Remove")
		}
		again := timer.Timer{Name: "late", Schedule: schedule.Every(2 * time.Second),
			Run: f.handler(1500 * time.Millisecond)}
		if err := h.Register(again); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 3*time.Second, "it runs again",
			func() bool { return len(h.Status().Timers[0].Running) == 1 })
		began := time.Now()
		if err := h.Remove(t.Context(), "late"); err != nil || time.Since(began) == 0 {
			t.Errorf("Remove returned %v after %v", err, time.Since(began))
		}
		f.Stop()
	})
}

// Without a store, the same code enforces the limits within one process. LocalOnly does so for one
// timer. A timer without limits does not call the store.
//
// Fails when hostLimit ignores MaxConcurrency, when settings.shared ignores LocalOnly or unlimited,
// when runner.finish does not free the run's place, or when Valid ignores the context.
func TestWithoutAStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var mu sync.Mutex
		slots := map[int]int{}
		work := func(ctx context.Context) error {
			r, ok := timer.RunFromContext(ctx)
			if !ok || !r.Valid() || r.Degraded() || r.Fence() != 0 {
				t.Errorf("run %+v", r)
			}
			mu.Lock()
			slots[r.Slot()]++
			mu.Unlock()
			defer f.watch.enter(ctx)()
			return sleep(ctx, 2500*time.Millisecond)
		}
		s, err := timer.New(timer.Config{},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 2,
				MaxPerTick: 2, MaxPerHost: timer.NoLimit,
				Run: work})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		local := f.start(timer.Config{},
			timer.Timer{Name: "b", LocalOnly: true, Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "c", MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit,
				Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "d", LocalOnly: true, MaxRunTime: time.Second, Run: func(ctx context.Context) error {
				<-ctx.Done()
				if r, _ := timer.RunFromContext(ctx); r.Valid() {
					t.Error("valid after MaxRunTime")
				}
				return nil
			}})
		if err := local.Trigger(t.Context(), "d"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if f.watch.peak["a"] != 2 || len(slots) != 2 || slots[0] == 0 || slots[1] == 0 {
			t.Errorf("%d at once, slots %v; want 2 in slots 0 and 1", f.watch.peak["a"], slots)
		}
		// The calls are for the host's own slot, and for one probe every 11 to 15 s, whatever the
		// timers do.
		if st := local.Status().Timers; local.Link.Calls(dlocktest.OpAcquire) > 7 || st[0].Started < 59 ||
			st[1].Started < 59 {
			n := local.Link.Calls(dlocktest.OpAcquire)
			t.Errorf("timers without limits called the store %d times; %+v", n, local.Status())
		}
		f.Stop()
	})
}

// Reading the overrides of many timers takes one call, and the results are in the order of the
// names. A damaged key, or an invalid name, does not hide the other results.
//
// Fails when InspectAll returns the states in another order, or one error for all.
func TestInspectAll(t *testing.T) {
	store := memlock.New()
	c := control.New(control.Config{Store: spoilt{store, "timer:bad"}})
	if err := c.Pause(t.Context(), "z", time.Now().Add(time.Hour), ann); err != nil {
		t.Fatal(err)
	}
	tooLong := strings.Repeat("x", 300)
	names := []string{"a", "bad", tooLong, "z"}
	list, err := c.InspectAll(t.Context(), names...)
	if err != nil || len(list) != len(names) {
		t.Fatal(list, err)
	}
	for i, state := range list {
		failed := names[i] == "bad" || names[i] == tooLong
		if state.Name != names[i] || (state.Err != nil) != failed || (state.Pause != nil) != (names[i] == "z") {
			t.Errorf("%q: %+v", names[i], state)
		}
	}
	if list, err := c.InspectAll(t.Context()); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if _, err := control.New(control.Config{}).InspectAll(t.Context(), "a"); !errors.Is(err, control.ErrNoControl) {
		t.Error(err)
	}
}
