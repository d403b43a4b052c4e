package timer_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// waited holds the results of Handle.Wait.
type waited struct {
	result any
	err    error
}

func wait(run *timer.Handle) waited {
	result, err := run.Wait(context.Background())
	return waited{result, err}
}

func triggerFor(t *testing.T, h *host, name string, options timer.TriggerOptions) *timer.Handle {
	t.Helper()
	run, err := h.Scheduler.Trigger(t.Context(), name, options)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// In each attempt, with and without a store, a run has the payload as it was when Trigger was
// called, and who triggered it. A caller that waits gets the result. Hooks and Status show both.
//
// Fails when the payload is not copied or not passed on, or when an attempt drops the result.
func TestTriggerGivesAPayloadAndGetsAResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for _, payload := range []string{"", "orders", "\xff\x00 not text", strings.Repeat("x", timer.MaxPayloadLen)} {
			for _, localOnly := range []bool{false, true} {
				var infos []timer.RunInfo
				hooks := timer.Hooks{RunStarted: func(i timer.RunInfo) { infos = append(infos, i) }}
				h := f.start(timer.Config{Hooks: hooks}, timer.Timer{Name: "a", LocalOnly: localOnly,
					Retry: timer.Retry{MaxAttempts: 2, FirstWait: time.Second},
					Run: func(ctx context.Context) error {
						run, _ := timer.RunFromContext(ctx)
						if by, ok := run.TriggeredBy(); !ok || by != ann || string(run.Payload()) != payload ||
							payload == "" && run.Payload() != nil {
							t.Errorf("by %v, %v, payload of %d bytes", by, ok, len(run.Payload()))
						}
						if run.Attempt() == 1 {
							run.SetResult("of the first attempt")
							return errors.New("no luck")
						}
						if got := run.Result(); got != "of the first attempt" {
							t.Errorf("the result is %v", got)
						}
						run.SetResult(len(run.Payload()))
						return nil
					}})
				given := []byte(payload)
				run := triggerFor(t, h, "a", timer.TriggerOptions{Payload: given, By: ann})
				clear(given)
				st := must(h.Status().Timer("a")).Running[0]
				if st.ID != run.ID() || st.TriggeredBy != ann || st.PayloadLen != len(payload) {
					t.Errorf("Status has %+v of run %s", st, run.ID())
				}
				if got := wait(run); got.result != len(payload) || got.err != nil {
					t.Errorf("%d bytes: %+v", len(payload), got)
				}
				if again := wait(run); again.result != len(payload) || again.err != nil {
					t.Errorf("asked twice: %+v", again)
				}
				f.Stop(h)
				if len(infos) != 1 || infos[0].TriggeredBy != ann || infos[0].PayloadLen != len(payload) {
					t.Errorf("the hook got %+v", infos)
				}
			}
		}
	})
}

// A payload that is one byte too long, and an invalid By, are refused.
func TestTriggerChecksItsOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Run: f.handler(0)})
		long := make([]byte, timer.MaxPayloadLen+1)
		if run, err := h.Scheduler.Trigger(t.Context(), "a", timer.TriggerOptions{Payload: long}); run != nil ||
			!errors.Is(err, timer.ErrPayloadTooLong) || !strings.Contains(err.Error(), "65537 bytes") {
			t.Errorf("%v, %v", run, err)
		}
		by := driver.Cause{By: "a\nb"}
		if run, err := h.Scheduler.Trigger(t.Context(), "a", timer.TriggerOptions{By: by}); run != nil || err == nil {
			t.Errorf("%v, %v", run, err)
		}
		if ran, _ := f.watch.ticks("a"); ran != 0 {
			t.Errorf("%d runs", ran)
		}
		f.Stop()
	})
}

// Wait returns a fixed outcome and error for each way in which a run ends.
//
// Fails when the wait does not end, the outcome is wrong, or the cause is missing.
func TestWaitReturnsTheOutcome(t *testing.T) {
	failure := errors.New("no luck")
	forContext := func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		run.SetResult("half")
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		run     func(context.Context) error
		happens func(*testing.T, *host, *timer.Handle)
		outcome timer.Outcome
		is      error
	}{
		"fails":  {func(context.Context) error { return failure }, nil, timer.OutcomeFailed, failure},
		"panics": {func(context.Context) error { panic(failure) }, nil, timer.OutcomePanicked, nil},
		"ends its goroutine": {func(context.Context) error { runtime.Goexit(); return nil }, nil, timer.OutcomeFailed,
			nil},
		"takes too long": {forContext, nil, timer.OutcomeTimedOut, timer.ErrMaxRunTime},
		"takes too long and returns nil": {func(ctx context.Context) error { <-ctx.Done(); return nil }, nil,
			timer.OutcomeTimedOut, timer.ErrMaxRunTime},
		"is canceled": {forContext, func(t *testing.T, h *host, run *timer.Handle) {
			if err := h.CancelRun("a", run.ID(), ann); err != nil {
				t.Error(err)
			}
		}, timer.OutcomeCanceled, timer.ErrCanceled},
		"loses its lease": {forContext, func(_ *testing.T, h *host, _ *timer.Handle) {
			h.Link.Inject(dlocktest.Hang)
		}, timer.OutcomeLeaseLost, dlock.ErrLost},
		"is drained": {forContext, func(_ *testing.T, h *host, _ *timer.Handle) { h.Cancel() },
			timer.OutcomeDraining, timer.ErrDraining},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.start(timer.Config{DrainTimeout: time.Second},
					timer.Timer{Name: "a", MaxRunTime: time.Minute, OnStoreDown: timer.StoreDownSkip, Run: c.run})
				run := triggerFor(t, h, "a", timer.TriggerOptions{})
				synctest.Wait()
				if c.happens != nil {
					c.happens(t, h, run)
				}
				got := wait(run)
				failed, ok := errors.AsType[*timer.OutcomeError](got.err)
				if !ok || failed.Outcome != c.outcome || failed.ID != run.ID() || failed.Timer != "a" ||
					c.is != nil && !errors.Is(got.err, c.is) {
					t.Errorf("%s: %+v", name, got)
				}
				p, ok := errors.AsType[*timer.PanicError](got.err)
				if ok != (name == "panics") || ok && p.Value != failure {
					t.Errorf("%s: %+v", name, got)
				}
				if got.result != nil && got.result != "half" {
					t.Errorf("%s: result %v", name, got.result)
				}
				h.Link.Heal()
				f.Stop()
			})
		})
	}
}

// The wait for a handler that never returns ends when Run gives up on the handler.
//
// Fails when giveUp leaves the handle open, or when the late end of the run is recorded.
func TestWaitEndsWithAStuckHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		stuck := timer.Timer{Name: "a", Run: func(ctx context.Context) error {
			<-release
			run, _ := timer.RunFromContext(ctx)
			run.SetResult("too late")
			return nil
		}}
		h := f.start(timer.Config{DrainTimeout: time.Second}, stuck)
		run := triggerFor(t, h, "a", timer.TriggerOptions{})
		h.Cancel()
		<-h.Done()
		check := func() {
			got := wait(run)
			failed, ok := errors.AsType[*timer.OutcomeError](got.err)
			if !ok || failed.Outcome != timer.OutcomeDraining || got.result != nil {
				t.Errorf("%+v", got)
			}
		}
		check()
		close(release)
		synctest.Wait()
		check()
		if _, stuck := errors.AsType[*timer.StuckError](h.Wait()); !stuck {
			t.Errorf("Run returned %v", h.Wait())
		}
	})
}

// A wait ends when its own context ends, whatever the run does. Waiting is optional.
func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", MaxConcurrency: 2, Run: f.handler(2 * time.Minute)})
		run := triggerFor(t, h, "a", timer.TriggerOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		result, err := run.Wait(ctx)
		if _, ok := errors.AsType[*timer.OutcomeError](err); ok || result != nil ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", result, err)
		}
		var none context.Context
		if _, err := run.Wait(none); err == nil {
			t.Error("a nil context was taken")
		}
		select {
		case <-run.Done():
			t.Error("the run ended with the wait")
		default:
		}
		triggerFor(t, h, "a", timer.TriggerOptions{}) // no caller waits for it
		time.Sleep(5 * time.Minute)
		f.Stop()
		if _, err := run.Wait(ctx); err != nil { // ctx has ended, and so has the run
			t.Error(err)
		}
	})
}

// The context of a run has the values of the caller's context, and the values of Run's context
// where the caller's has none. It does not end with the caller's context, and has its own cause.
//
// Fails when the caller's cancellation is passed on, even through context.Cause, which looks up a
// value of package context.
func TestTriggeredRunsHaveTheValuesOfTheirCaller(t *testing.T) {
	type key string
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var caller context.Context
		run := func(ctx context.Context) error {
			if ctx.Value(key("trace")) != "t-1" || ctx.Value(key("both")) != "caller" ||
				ctx.Value(key("run")) != "run" {
				t.Errorf("values %v, %v, %v", ctx.Value(key("trace")), ctx.Value(key("both")), ctx.Value(key("run")))
			}
			r, _ := timer.RunFromContext(ctx)
			if by, _ := timer.RunFromContext(caller); by == r || r.Timer() != "a" {
				t.Errorf("the run is %v", r.Timer())
			}
			time.Sleep(time.Second)
			if caller.Err() == nil || ctx.Err() != nil || context.Cause(ctx) != nil {
				t.Errorf("the caller's context ended with %v, the run's with %v: %v", caller.Err(), ctx.Err(),
					context.Cause(ctx))
			}
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			if !errors.Is(context.Cause(child), timer.ErrMaxRunTime) {
				t.Errorf("cause %v", context.Cause(child))
			}
			return nil
		}
		s, err := timer.New(timer.Config{Store: f.store}, timer.Timer{Name: "a", MaxRunTime: time.Minute, Run: run})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(context.WithValue(t.Context(), key("run"), "run"), key("both"), "run")
		ctx, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-s.Running()
		caller = context.WithValue(context.WithValue(t.Context(), key("trace"), "t-1"), key("both"), "caller")
		caller, cancel := context.WithCancel(timer.ContextWithRun(caller, timer.RunSpec{Timer: "outer"}))
		handle, err := s.Trigger(caller, "a", timer.TriggerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := handle.Wait(t.Context()); !errors.Is(err, timer.ErrMaxRunTime) {
			t.Error(err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A Run that was not triggered has no payload and drops its result, and neither method panics. A
// unit test of a handler can use both.
func TestPayloadAndResultOutsideATrigger(t *testing.T) {
	none, _ := timer.RunFromContext(t.Context())
	none.SetResult(1)
	if none.Payload() != nil || none.Result() != nil {
		t.Errorf("%v, %v", none.Payload(), none.Result())
	}
	ctx := timer.ContextWithRun(t.Context(), timer.RunSpec{Payload: []byte("orders")})
	run, _ := timer.RunFromContext(ctx)
	run.SetResult(7)
	if !bytes.Equal(run.Payload(), []byte("orders")) || run.Result() != 7 {
		t.Errorf("%q, %v", run.Payload(), run.Result())
	}
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		ticks := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			run.SetResult(1)
			if run.Payload() != nil || run.Result() != nil {
				t.Errorf("a run with a tick has %v, %v", run.Payload(), run.Result())
			}
			return nil
		}}
		h := f.start(timer.Config{}, ticks)
		time.Sleep(2 * time.Minute)
		f.Stop(h)
	})
}
