package timer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A run's context says what ended it first, and so do those derived from it.
//
// Fails when the context is not derived from that of all runs, and when its deadline has no cause
// of its own.
func TestRunContext(t *testing.T) {
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
		"lost":       {func(r *Run, _ func()) { r.cancel(lost) }, context.Canceled, lost},
		"drained":    {func(_ *Run, drain func()) { drain() }, context.Canceled, ErrDraining},
		"over":       {func(r *Run, _ func()) { r.end() }, context.Canceled, context.Canceled},
		"MaxRunTime, lost": {func(r *Run, _ func()) { past(maxRunTime); r.cancel(lost) }, context.DeadlineExceeded,
			ErrMaxRunTime},
		"lost, MaxRunTime": {func(r *Run, _ func()) { r.cancel(lost); past(maxRunTime) }, context.Canceled, lost},
		"MaxRunTime, over": {func(r *Run, _ func()) { past(maxRunTime); r.end() }, context.DeadlineExceeded,
			ErrMaxRunTime},
		"drained and lost":   {func(r *Run, drain func()) { drain(); r.cancel(lost) }, context.Canceled, ErrDraining},
		"lost after the end": {func(r *Run, _ func()) { r.end(); r.cancel(lost) }, context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
				defer cancel(nil)
				n := &runner{base: base}
				r := n.newRun(newEntry(Timer{Name: "a", MaxRunTime: maxRunTime}, false), 0, false)
				defer r.end()
				c.happens(r, func() { cancel(ErrDraining) })
				synctest.Wait()
				if cause := context.Cause(r.ctx); !errors.Is(cause, c.cause) {
					t.Errorf("cause is %v, want %v", cause, c.cause)
				}
				child, stop := context.WithCancel(r.ctx)
				defer stop()
				for which, ctx := range map[string]context.Context{"its own": r.ctx, "a derived one": child} {
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
						!deadline.Equal(r.ends()) {
						t.Errorf("%s: run %v, value %v, deadline %v %v", which, got, ctx.Value(key{}), deadline, ok)
					}
				}
			})
		})
	}
}
