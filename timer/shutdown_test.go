package timer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// When Run returns, no goroutine is left, which the end of the bubble proves, and every slot is
// released. Handlers have time to finish, and are then canceled. A slot is kept until its handler
// has returned.
//
// Fails when Scheduler.drain cancels immediately, when it does not wait, or when runner.finish
// releases before the handler returns.
func TestI8DrainLetsRunsFinishAndReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var slow, stubborn error
		config := timer.Config{PreStopDelay: 2 * time.Second, DrainTimeout: 10 * time.Second}
		h := f.start(config,
			timer.Timer{Name: "finishes", Schedule: schedule.Every(time.Second),
				Run: func(ctx context.Context) error { slow = sleep(ctx, 8*time.Second); return slow }},
			timer.Timer{Name: "is canceled", Schedule: schedule.Every(time.Second),
				Run: func(ctx context.Context) error {
					<-ctx.Done()
					if list, _ := f.store.List(context.Background(), "timer:is canceled", 1); len(list) != 1 {
						t.Error("its slot was released before the handler returned")
					}
					stubborn = context.Cause(ctx)
					return nil
				}})
		testkit.Eventually(t, 5*time.Second, "both run", func() bool {
			st := h.Status().Timers
			return len(st[0].Running) == 1 && len(st[1].Running) == 1
		})
		h.Cancel()
		time.Sleep(time.Millisecond)
		if err := h.Ready(); err == nil {
			t.Error("ready while draining")
		}
		if err := h.Live(); err != nil {
			t.Errorf("not live while draining: %v", err)
		}
		began := time.Now()
		if err := h.Wait(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(began); took < 11*time.Second || took > 13*time.Second {
			t.Errorf("draining took %v, want PreStopDelay + DrainTimeout", took)
		}
		if slow != nil {
			t.Errorf("the run that would have finished was canceled: %v", slow)
		}
		if !errors.Is(stubborn, timer.ErrDraining) {
			t.Errorf("cause %v, want ErrDraining", stubborn)
		}
		for _, name := range []string{"finishes", "is canceled"} {
			if list, _ := f.store.List(t.Context(), "timer:"+name, 1); len(list) != 0 {
				t.Errorf("%s: slot still held: %+v", name, list)
			}
		}
		if err := h.Trigger(t.Context(), "finishes"); !errors.Is(err, timer.ErrRefused) {
			t.Errorf("Trigger after the end: %v", err)
		}
	})
}

// Run's error names a handler that never returns. The slot of that handler is left to expire, and
// is not released.
//
// Fails when runner.finish releases after Run has given up, or when Scheduler.wait forgets removed
// timers.
func TestI8StuckHandlerIsNamedAndItsSlotExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		forever := make(chan struct{})
		stuck := timer.Timer{Name: "stuck", Schedule: schedule.Every(time.Second),
			Run: func(context.Context) error { <-forever; return nil }}
		removed := stuck
		removed.Name = "removed"
		var log testkit.Log
		h := f.start(timer.Config{DrainTimeout: time.Second, Logger: textLogger(&log)}, stuck, removed)
		testkit.Eventually(t, 5*time.Second, "both run", func() bool {
			st := h.Status().Timers
			return len(st[0].Running) == 1 && len(st[1].Running) == 1
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.Remove(ctx, "removed"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Remove returned %v", err)
		}
		h.Cancel()
		began := time.Now()
		err := h.Wait()
		if stuck, ok := errors.AsType[*timer.StuckError](err); !ok || !slices.Equal(stuck.Timers,
			[]string{"removed", "stuck"}) {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(began); took > time.Second+timer.CancelGrace+2*time.Second {
			t.Errorf("Run returned after %v", took)
		}
		if text := log.String(); !strings.Contains(text, `level=INFO msg="timer: stopped" drain=`) ||
			!strings.Contains(text, `still_running="removed, stuck"`) {
			t.Errorf("the log does not name the runs that were still in progress:\n%s", text)
		}
		releases := h.Link.Calls(dlocktest.OpRelease)
		close(forever)
		time.Sleep(time.Second)
		if n := h.Link.Calls(dlocktest.OpRelease); n != releases {
			t.Error("its slot was released after Run had returned")
		}
		if list, _ := f.store.List(t.Context(), "timer:stuck", 1); len(list) != 1 {
			t.Errorf("held: %+v, want its slot until it expires", list)
		}
		time.Sleep(dlock.DefaultTTL)
		if list, _ := f.store.List(t.Context(), "timer:stuck", 1); len(list) != 0 {
			t.Errorf("held: %+v after a TTL", list)
		}
	})
}

// Draining takes a bounded time even if the store hangs.
//
// Fails when Session.Close waits for the store without its own bound.
func TestI8DrainIsBoundedWhileTheStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second),
			Run: f.handler(100 * time.Millisecond)})
		time.Sleep(10 * time.Second)
		h.Link.Inject(dlocktest.Hang)
		time.Sleep(10 * time.Second)
		h.Cancel()
		began := time.Now()
		if err := h.Wait(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("draining took %v", took)
		}
		h.Link.Heal()
	})
}

// The context of a handler does not end with Run's context, but has its values.
//
// Fails when runHost.base is derived from Run's context unchanged, or from context.Background.
func TestHandlersContextOutlivesRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		var value any
		var err error
		s, newErr := timer.New(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second),
			Run: func(ctx context.Context) error {
				value = ctx.Value(key{})
				time.Sleep(3 * time.Second)
				err = ctx.Err()
				return nil
			}})
		if newErr != nil {
			t.Fatal(newErr)
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		testkit.Eventually(t, 5*time.Second, "it runs", func() bool { return len(s.Status().Timers[0].Running) == 1 })
		cancel()
		if e := <-done; e != nil {
			t.Error(e)
		}
		if err != nil || value != "v" {
			t.Errorf("the handler saw %v and the value %v", err, value)
		}
		if e := s.Run(t.Context()); e == nil {
			t.Error("Run could be called twice")
		}
	})
}

// Every way in which a run can end has its own outcome.
//
// Fails when outcomeOf treats a canceled run as a failed one.
func TestOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{DrainTimeout: time.Second},
			timer.Timer{Name: "too long", MaxRunTime: time.Second, Run: f.handler(time.Hour)},
			timer.Timer{Name: "cancelled", Run: f.handler(time.Hour)})
		for _, name := range []string{"too long", "cancelled"} {
			if err := h.Trigger(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Second)
		f.Stop()
		for name, want := range map[string]struct {
			outcome timer.Outcome
			err     error
		}{"too long": {timer.OutcomeTimedOut, timer.ErrMaxRunTime}, "cancelled": {timer.OutcomeDraining,
			timer.ErrDraining}} {
			if st, _ := h.Status().Timer(name); st.Last == nil || st.Last.Outcome != want.outcome ||
				!errors.Is(st.Last.Err, want.err) {
				t.Errorf("%s: %+v, want %s", name, st.Last, want.outcome)
			}
		}
	})
}
