package timer_test

import (
	"context"
	"errors"
	"strings"
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
	"github.com/tickslot/tickslot/timer/control"
)

// A run that is canceled on its host ends immediately, and no other run does. Its context says who
// canceled it. The run is not retried, and it counts as canceled whatever its handler returns. Its
// slot is free when the handler has returned, not before. The cancellation is logged once.
//
// Fails when runner.cancel does not end the context, or ends the context of another run, when
// outcomeOf checks the handler's error first, or when each call to cancel is logged.
func TestCancelRunHere(t *testing.T) {
	for name, job := range map[string]timer.Timer{
		"with a store": {MaxConcurrency: 2},
		"local":        {MaxConcurrency: 2, LocalOnly: true},
		"no limit":     {MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit, MaxPerHost: 2},
		"retried": {MaxConcurrency: 2, Retry: timer.Retry{MaxAttempts: 5, FirstWait: time.Minute,
			MaxWait: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				log := &testkit.Log{}
				causes := make(chan error, 10)
				var calls atomic.Int32
				job.Name, job.Run = "a", func(ctx context.Context) error {
					defer f.watch.enter(ctx)()
					calls.Add(1)
					if name == "retried" {
						return errors.New("no luck")
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					time.Sleep(3 * time.Second)
					return nil
				}
				h := f.start(timer.Config{Logger: textLogger(log)}, job)
				for range 2 {
					if err := h.Trigger(t.Context(), "a"); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				running := must(h.Status().Timer("a")).Running
				id, other := running[0].ID, running[1].ID
				if id == "" || id == other {
					t.Fatalf("the runs are %q and %q", id, other)
				}
				for again := range 2 {
					err := h.CancelRun("a", id, ann)
					if again == 1 && name == "retried" && errors.Is(err, timer.ErrNoRun) {
						err = nil // the run waited for an attempt, so it may have ended by now
					}
					if err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				if name != "retried" {
					var canceled *timer.CanceledError
					cause := <-causes
					if !errors.As(cause, &canceled) || canceled.By != ann || !errors.Is(cause, timer.ErrCanceled) ||
						errors.Is(cause, dlock.ErrLost) || !strings.Contains(cause.Error(), "ann") {
						t.Errorf("cause %v", cause)
					}
					if err := h.Trigger(t.Context(), "a"); err == nil {
						t.Error("the place was free before the handler had returned")
					}
					time.Sleep(4 * time.Second)
				}
				st := must(h.Status().Timer("a"))
				if len(st.Running) != 1 || st.Running[0].ID != other || st.Last == nil ||
					st.Last.Outcome != timer.OutcomeCanceled {
					t.Errorf("%+v, last %+v: want one canceled and the other in progress", st.Running, st.Last)
				}
				if n := calls.Load(); name == "retried" && n != 2 {
					t.Errorf("%d calls, want the first of each run", n)
				}
				select {
				case cause := <-causes:
					t.Errorf("the other run ended, too: %v", cause)
				default:
				}
				for what, err := range map[string]error{
					"one that has ended": h.CancelRun("a", id, ann),
					"one of no run":      h.CancelRun("a", "x", ann),
				} {
					if !errors.Is(err, timer.ErrNoRun) {
						t.Errorf("%s: %v, want ErrNoRun", what, err)
					}
				}
				if err := h.CancelRun("b", other, ann); !errors.Is(err, timer.ErrNoTimer) {
					t.Errorf("of another timer: %v, want ErrNoTimer", err)
				}
				if err := h.CancelRun("a", other, driver.Cause{}); err == nil ||
					!strings.Contains(err.Error(), "say who") {
					t.Errorf("by nobody: %v", err)
				}
				if n := strings.Count(log.String(), "timer: run canceled"); n != 1 ||
					!strings.Contains(log.String(), "by=ann") {
					t.Errorf("it was logged %d times: %s", n, log)
				}
				if err := h.CancelRun("a", other, ann); err != nil {
					t.Error(err)
				}
				time.Sleep(4 * time.Second)
				f.Stop()
				f.watch.check(t)
			})
		})
	}
}

// A Control cancels a run on any host by its ID, within a heartbeat and at most once. It does not
// cancel the next run of the slot. The host logs who canceled the run, and does not count a lost
// lease.
//
// Fails when the fence of the ID is ignored, when runner.lost treats a revoked lease like any other
// lost lease, or when a run without a slot in the store is looked up by its slot.
func TestCancelRunElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		log := &testkit.Log{}
		reg := newRegistry()
		job := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute).Offset(0), Run: f.handler(20 * time.Second)}
		local := timer.Timer{Name: "local", LocalOnly: true, Run: f.handler(time.Minute)}
		h := f.start(timer.Config{Logger: textLogger(log), Registerer: reg}, job, local)
		ctl := control.New(control.Config{Store: f.store})
		run := func(name string) timer.RunInfo { return must(h.Status().Timer(name)).Running[0] }
		time.Sleep(61 * time.Second)
		first := run("a")
		if err := ctl.CancelRun(t.Context(), "a", first.ID, ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat)
		st := must(h.Status().Timer("a"))
		if len(st.Running) != 0 || st.Last.Outcome != timer.OutcomeCanceled ||
			!errors.Is(st.Last.Err, timer.ErrCanceled) || !errors.Is(st.Last.Err, dlock.ErrLost) {
			t.Errorf("%+v: want it canceled within %v", st, beat)
		}
		if text := log.String(); strings.Count(text, "timer: run canceled") != 1 ||
			strings.Contains(text, "lease lost") || !strings.Contains(text, "run="+first.ID) ||
			!strings.Contains(text, "by=ann") {
			t.Errorf("log: %s", text)
		}
		if lost := values(t, reg)["tickslot_leases_lost_total a"]; lost != 0 {
			t.Errorf("%v leases count as lost", lost)
		}
		time.Sleep(time.Minute)
		next := run("a")
		if next.Slot != first.Slot || next.ID == first.ID {
			t.Errorf("the next run is %+v, want one in the same slot with another ID than %+v", next, first)
		}
		if err := ctl.CancelRun(t.Context(), "a", first.ID, ann); !errors.Is(err, timer.ErrNoRun) {
			t.Errorf("one that has ended: %v, want ErrNoRun", err)
		}
		if err := h.Trigger(t.Context(), "local"); err != nil {
			t.Fatal(err)
		}
		if err := ctl.CancelRun(t.Context(), "local", run("local").ID, ann); !errors.Is(err, timer.ErrNoRun) {
			t.Errorf("one without a slot in the store: %v, want ErrNoRun", err)
		}
		time.Sleep(beat)
		if run("a").ID != next.ID || !run("a").Valid {
			t.Error("the next run of the slot was canceled, too")
		}
		// A host that cannot reach the store continues without it, so its run no longer holds the
		// slot.
		h.Link.Inject(dlocktest.Hang)
		if err := ctl.CancelSlot(t.Context(), "a", next.Slot, ann); err != nil {
			t.Error(err)
		}
		time.Sleep(15 * time.Second)
		if running := must(h.Status().Timer("a")).Running; len(running) > 0 && running[0].Valid {
			t.Errorf("%+v is valid, and was canceled a TTL ago", running)
		}
		h.Link.Heal()
		time.Sleep(time.Minute)
		f.Stop()
		f.watch.check(t)
	})
}
