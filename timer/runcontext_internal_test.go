package timer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A run's context, and contexts derived from it, report the same whether they are first used when
// the run begins or later.
//
// Fails when runContext.cause ignores ends or base, when runContext.context does not check over
// first, when runContext.end does not set it, or when lose does not create the context first, so
// that earlier events are forgotten.
func TestRunContextAskedLate(t *testing.T) {
	type key struct{}
	lost := &dlock.LostError{Name: "timer:a"}
	const maxRunTime = time.Minute
	past := func(d time.Duration) {
		time.Sleep(d)
		synctest.Wait()
	}
	for name, c := range map[string]struct {
		happens func(r *Run, drain func())
		err     error
		cause   error
	}{
		"nothing":    {func(*Run, func()) {}, nil, nil},
		"MaxRunTime": {func(*Run, func()) { past(maxRunTime) }, context.DeadlineExceeded, ErrMaxRunTime},
		"lost":       {func(r *Run, _ func()) { r.ctx.lose(lost) }, context.Canceled, lost},
		"drained":    {func(_ *Run, drain func()) { drain() }, context.Canceled, ErrDraining},
		"over":       {func(r *Run, _ func()) { r.ctx.end() }, context.Canceled, context.Canceled},
		"MaxRunTime, lost": {func(r *Run, _ func()) { past(maxRunTime); r.ctx.lose(lost) }, context.DeadlineExceeded,
			ErrMaxRunTime},
		"lost, MaxRunTime": {func(r *Run, _ func()) { r.ctx.lose(lost); past(maxRunTime) }, context.Canceled, lost},
		"MaxRunTime, over": {func(r *Run, _ func()) { past(maxRunTime); _ = r.ctx.cause(); r.ctx.end() },
			context.DeadlineExceeded, ErrMaxRunTime},
		"over, MaxRunTime": {func(r *Run, _ func()) { r.ctx.end(); past(maxRunTime) }, context.Canceled,
			context.Canceled},
		"over, drained":    {func(r *Run, drain func()) { r.ctx.end(); drain() }, context.Canceled, context.Canceled},
		"drained and lost": {func(r *Run, drain func()) { drain(); r.ctx.lose(lost) }, context.Canceled, ErrDraining},
		"lost after the end": {func(r *Run, _ func()) { r.ctx.end(); r.ctx.lose(lost) }, context.Canceled,
			context.Canceled},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, asked early %v", name, early), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
					defer cancel(nil)
					r := &Run{settings: &settings{timer: Timer{Name: "a", MaxRunTime: maxRunTime}},
						startedAt: time.Now(),
						host:      &runHost{base: base}}
					r.ctx.run = r
					defer r.ctx.end()
					if early {
						r.ctx.Done()
					}
					c.happens(r, func() { cancel(ErrDraining) })
					synctest.Wait()
					if cause := r.ctx.cause(); !errors.Is(cause, c.cause) {
						t.Errorf("cause is %v, want %v", cause, c.cause)
					}
					child, stop := context.WithCancel(&r.ctx)
					defer stop()
					for which, ctx := range map[string]context.Context{"its own": &r.ctx, "a derived one": child} {
						if ctx.Err() != c.err || !errors.Is(context.Cause(ctx), c.cause) {
							t.Errorf("%s: %v, cause %v; want %v, cause %v", which, ctx.Err(), context.Cause(ctx), c.err,
								c.cause)
						}
						select {
						case <-ctx.Done():
							if c.err == nil {
								t.Errorf("%s: done", which)
							}
						default:
							if c.err != nil {
								t.Errorf("%s: not done", which)
							}
						}
						deadline, ok := ctx.Deadline()
						if got, in := RunFromContext(ctx); !in || got != r || ctx.Value(key{}) != "value" || !ok ||
							!deadline.Equal(r.endsAt()) {
							t.Errorf("%s: run %v, value %v, deadline %v %v", which, got, ctx.Value(key{}), deadline, ok)
						}
					}
				})
			})
		}
	}
}

// If a run's context is first used after the end of the run, nothing remains in the parent context
// of all runs.
//
// Fails when runContext.context, for a run that is over, cancels only the part that has the
// deadline.
func TestLateContextLeavesNothingBehind(t *testing.T) {
	all, stop := context.WithCancel(t.Context())
	defer stop()
	before := runtime.NumGoroutine()
	for range 100 {
		late := &Run{settings: &settings{timer: Timer{MaxRunTime: time.Hour}}, startedAt: time.Now(),
			host: &runHost{base: &opaque{Context: all}}}
		late.ctx.run = late
		late.ctx.end()
		if late.ctx.Err() == nil {
			t.Fatal("the context of a run that is over has not ended")
		}
	}
	// If a parent is not a context of the standard library, a goroutine waits for the parent for
	// each child.
	testkit.Eventually(t, 10*time.Second, "no goroutine is left behind", func() error {
		if n := runtime.NumGoroutine() - before; n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// BenchmarkAllocationsOfContexts measures the benefit of creating the contexts of a run only when
// its handler uses them.
func BenchmarkAllocationsOfContexts(b *testing.B) {
	for name, run := range map[string]func(context.Context) error{
		"unused": func(context.Context) error { return nil },
		"used":   func(ctx context.Context) error { ctx.Done(); return nil },
	} {
		b.Run(name, func(b *testing.B) {
			_, tick := dueAgain(b, nil, run)
			b.ReportAllocs()
			for b.Loop() {
				tick()
			}
		})
	}
}

// opaque hides the type of the wrapped context.
type opaque struct{ context.Context }

func (c *opaque) Value(key any) any { return nil }
