package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

type ctxKey struct{}

// Middleware wraps every timer once, the first one outermost. It runs for every attempt, with the
// run's context and its error.
//
// Fails when guard.Wrap begins with the first one, or when the runner calls Timer.Run directly.
func TestMiddlewareWrapsEveryAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var trace []string
		wrapped := 0
		layer := func(name string) timer.Middleware {
			return func(next timer.Handler) timer.Handler {
				wrapped++
				return func(ctx context.Context) error {
					r, ok := timer.RunFromContext(ctx)
					if !ok {
						t.Error("no run in the context")
					}
					trace = append(trace, fmt.Sprint(name, r.Attempt(), "("))
					err := next(context.WithValue(ctx, ctxKey{}, name))
					trace = append(trace, ")"+name)
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		h := f.start(timer.Config{Middleware: []timer.Middleware{layer("a"), layer("b")}},
			timer.Timer{Name: "x", Retry: timer.Retry{MaxAttempts: 2}, Run: func(ctx context.Context) error {
				if r, ok := timer.RunFromContext(ctx); !ok || r.Timer() != "x" || ctx.Value(ctxKey{}) != "b" {
					t.Error("the context is a different one")
				}
				trace = append(trace, "run")
				return errFlaky
			}})
		if err := h.Register(timer.Timer{Name: "late", Run: nop}); err != nil {
			t.Fatal(err)
		}
		if wrapped != 4 {
			t.Errorf("%d calls for two timers, want 4", wrapped)
		}
		trigger(t, h, "x")
		time.Sleep(time.Minute)
		f.Stop()
		if got := strings.Join(trace, " "); got != "a1( b1( run )b )a a2( b2( run )b )a" {
			t.Error(got)
		}
		if res := last(t, h, "x"); res.Outcome != timer.OutcomeFailed || res.Err.Error() != "a: b: "+errFlaky.Error() {
			t.Errorf("%+v", res)
		}
		if wrapped != 4 {
			t.Errorf("%d calls after the run", wrapped)
		}
	})
}

// Middleware that is nil, panics or returns nil is a fault of the registration. The fault is
// returned once, with all others, before anything starts.
//
// Fails when guard.Wrap does not recover, or when prepare continues with the faulty middleware.
func TestI11FaultyMiddleware(t *testing.T) {
	through := func(next timer.Handler) timer.Handler { return next }
	calls := 0
	for name, c := range map[string]struct {
		middleware timer.Middleware
		fault      string
		calls      int
	}{
		"nil": {nil, "timer: Config.Middleware[1]: it is nil", 0},
		"panics": {func(timer.Handler) timer.Handler { calls++; panic("oh") },
			"Config.Middleware[1]: the middleware panicked: oh", 1},
		"returns nil": {func(timer.Handler) timer.Handler { calls++; return nil },
			"Config.Middleware[1]: it returned nil", 1},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			s, err := timer.New(timer.Config{Middleware: []timer.Middleware{through, c.middleware, through}},
				timer.Timer{Name: "a", Run: nop}, timer.Timer{Name: "b", Run: nop}, timer.Timer{Name: "c"})
			if s != nil || err == nil || strings.Count(err.Error(), c.fault) != 1 ||
				strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), `timer "c": Run: it is nil`) ||
				calls != c.calls {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
	faulty := false
	s, err := timer.New(timer.Config{Logger: slog.New(slog.DiscardHandler), Middleware: []timer.Middleware{
		func(next timer.Handler) timer.Handler {
			if faulty {
				panic("oh")
			}
			return next
		}}}, timer.Timer{Name: "a", Run: nop})
	if err != nil {
		t.Fatal(err)
	}
	faulty = true
	if err := s.Register(timer.Timer{Name: "b", Run: nop}); err == nil || len(s.Status().Timers) != 1 {
		t.Errorf("registered: %v, %+v", err, s.Status().Timers)
	}
	faulty = false
	if err := s.Register(timer.Timer{Name: "b", Run: nop}); err != nil {
		t.Errorf("it is no longer faulty: %v", err)
	}
}

// The behavior of middleware counts as the run's: a panic, a Goexit, an error, a wait that only
// MaxRunTime ends, or not calling the handler at all. No other timer loses a tick.
//
// Fails when carryOut recovers only from panics of the handler, or when MaxRunTime counts from the
// call of the handler.
func TestI10MiddlewareHarmsNobody(t *testing.T) {
	errNo := errors.New("no")
	for name, c := range map[string]struct {
		does    func(ctx context.Context, h *host, next timer.Handler) error
		outcome timer.Outcome
		ran     bool
	}{
		"panics": {func(context.Context, *host, timer.Handler) error { panic("oh") }, timer.OutcomePanicked, false},
		"exits": {func(context.Context, *host, timer.Handler) error { runtime.Goexit(); return nil },
			timer.OutcomeFailed, false},
		"fails": {func(ctx context.Context, _ *host, next timer.Handler) error { return errors.Join(next(ctx), errNo) },
			timer.OutcomeFailed, true},
		"hangs": {func(ctx context.Context, _ *host, _ timer.Handler) error { <-ctx.Done(); return context.Cause(ctx) },
			timer.OutcomeTimedOut, false},
		"skips": {func(context.Context, *host, timer.Handler) error { return nil }, timer.OutcomeOK, false},
		"calls": {func(ctx context.Context, h *host, next timer.Handler) error {
			h.Status()
			if err := h.Trigger(ctx, "x"); !errors.Is(err, timer.ErrRefused) {
				return fmt.Errorf("triggered: %w", err)
			}
			if err := h.Register(timer.Timer{Name: "new", Run: nop}); err != nil {
				return err
			}
			return errors.Join(h.Remove(ctx, "new"), h.Remove(ctx, "x"), next(ctx))
		}, timer.OutcomeOK, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var x told
				var h *host
				ran := false
				only := func(next timer.Handler) timer.Handler {
					return func(ctx context.Context) error {
						if r, _ := timer.RunFromContext(ctx); r.Timer() == "x" {
							return c.does(ctx, h, next)
						}
						return next(ctx)
					}
				}
				h = f.start(timer.Config{Hooks: x.hooks(), Middleware: []timer.Middleware{only}},
					timer.Timer{Name: "x", MaxRunTime: time.Minute,
						Run: func(context.Context) error { ran = true; return nil }},
					timer.Timer{Name: "other", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
				trigger(t, h, "x")
				time.Sleep(100 * time.Second)
				st, _ := h.Status().Timer("other")
				f.Stop()
				i := slices.IndexFunc(x.ended, func(r timer.RunResult) bool { return r.Timer == "x" })
				if i < 0 || x.ended[i].Outcome != c.outcome || ran != c.ran {
					t.Errorf("ran %v, ended %+v", ran, x.ended[max(0, i)])
				}
				if st.Started < 99 {
					t.Errorf("the other timer ran %d times", st.Started)
				}
			})
		})
	}
}

// If middleware hangs or calls the Scheduler while it wraps a timer, only the caller of Register is
// delayed. Other registrations, status, ticks and the end of Run do not wait for it.
//
// Fails when guard.Wrap is called with a mutex of the Scheduler held.
func TestI10MiddlewareThatIsStuckWhenItWraps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var wraps atomic.Pointer[func()] // called by the next wrap
		h := f.start(timer.Config{Middleware: []timer.Middleware{func(next timer.Handler) timer.Handler {
			if does := wraps.Swap(nil); does != nil {
				(*does)()
			}
			return next
		}}}, timer.Timer{Name: "other", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		registered := make(chan error, 1)
		register := func(name string, does func()) {
			wraps.Store(&does)
			go func() { registered <- h.Register(timer.Timer{Name: name, Run: nop}) }()
			time.Sleep(10 * time.Second)
		}
		call := func() {
			h.Status()
			for what, err := range map[string]error{"Register": h.Register(timer.Timer{Name: "new", Run: nop}),
				"Update":  h.Update(timer.Timer{Name: "new", Schedule: schedule.Every(time.Minute), Run: nop}),
				"Trigger": h.Trigger(t.Context(), "new"), "Remove": h.Remove(t.Context(), "new")} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		release := make(chan struct{})
		register("hangs", func() { <-release })
		call()
		register("calls", call)
		if err := <-registered; err != nil {
			t.Error(err)
		}
		time.Sleep(80 * time.Second)
		if st, _ := h.Status().Timer("other"); st.Started < 99 {
			t.Errorf("the other timer ran %d times", st.Started)
		}
		began := time.Now()
		f.Stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run ended after %v", took)
		}
		close(release)
		if err := <-registered; err == nil || !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("registered after Run had ended: %v", err)
		}
	})
}

// The slot is held until the outermost middleware has returned.
//
// Fails when the slot is released once the handler has returned.
func TestMiddlewareHoldsTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{Middleware: []timer.Middleware{func(next timer.Handler) timer.Handler {
			return func(ctx context.Context) error { defer time.Sleep(time.Minute); return next(ctx) }
		}}}, timer.Timer{Name: "a", Run: nop})
		trigger(t, h, "a")
		other := otherSession(t, f.store).Semaphore("timer:a", 1)
		if _, err := other.TryAcquire(t.Context()); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("the slot is free: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if lease, err := other.TryAcquire(t.Context()); err != nil {
			t.Error(err)
		} else if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}
