package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// The context of a call behaves like a context from context.WithDeadline when code waits for it,
// reads it or derives from it, before and after its end.
//
// Fails when Err omits one of the three ends; when the error can change (the deadline comes after
// the parent's end); when derived ignores ended; or when Value does not look at the inner context
// (then context.Cause and children see only the parent's end, and a child costs a goroutine).
func TestContextOfACall(t *testing.T) {
	type key struct{}
	cause := errors.New("enough")
	ends := map[string]func(parent context.CancelCauseFunc, end func()){
		"parent":              func(parent context.CancelCauseFunc, end func()) { parent(cause) },
		"deadline":            func(parent context.CancelCauseFunc, end func()) { advance(time.Second) },
		"over":                func(parent context.CancelCauseFunc, end func()) { end() },
		"deadline, then over": func(parent context.CancelCauseFunc, end func()) { advance(time.Second); end() },
		"nothing":             func(parent context.CancelCauseFunc, end func()) {},
		"nothing until almost": func(parent context.CancelCauseFunc, end func()) {
			advance(time.Second - time.Nanosecond)
		},
	}
	uses := map[string]func(ctx context.Context) any{
		"not used": func(ctx context.Context) any { return nil },
		"waited":   func(ctx context.Context) any { return ctx.Done() != nil },
		"asked":    func(ctx context.Context) any { return ctx.Err() },
		"has child": func(ctx context.Context) any {
			child, cancel := context.WithCancel(ctx)
			context.AfterFunc(child, cancel)
			return child
		},
	}
	see := func(ctx context.Context, before any) string {
		first := fmt.Sprint(context.Cause(ctx), " ", ctx.Err(), " ")
		closed := false
		select {
		case <-ctx.Done():
			closed = true
		default:
		}
		if child, ok := before.(context.Context); ok {
			synctest.Wait()
			before = fmt.Sprint(child.Err(), context.Cause(child))
		}
		at, ok := ctx.Deadline()
		return first + fmt.Sprint(before, " ", ctx.Err(), " ", context.Cause(ctx), " ", closed, " ", time.Until(at), ok,
			" ", ctx.Value(key{}))
	}
	for how, end := range ends {
		for use, before := range uses {
			t.Run(how+"/"+use, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for _, parentEnds := range []time.Duration{500 * time.Millisecond, time.Minute} {
						run := func(bound func(context.Context, time.Time) (context.Context, func())) string {
							base, stop := context.WithTimeout(context.WithValue(bg, key{}, "trace"), parentEnds)
							defer stop()
							parent, cancel := context.WithCancelCause(base)
							defer cancel(nil)
							ctx, over := bound(parent, time.Now().Add(time.Second))
							defer over()
							goroutines := runtime.NumGoroutine()
							was := before(ctx)
							if n := runtime.NumGoroutine() - goroutines; n > 0 {
								t.Errorf("%d goroutines", n)
							}
							start := time.Now()
							end(cancel, over)
							said := see(ctx, was)
							time.Sleep(time.Until(start.Add(2 * time.Second))) // lets the same time pass for both
							return said + " later " + see(ctx, nil)
						}
						want := run(func(c context.Context, at time.Time) (context.Context, func()) {
							ctx, cancel := context.WithDeadline(c, at)
							return ctx, cancel
						})
						if got := run(dlock.LazyDeadline); got != want {
							t.Errorf("parent %v:\n got %s\nwant %s", parentEnds, got, want)
						}
					}
				})
			})
		}
	}
}

// The context of a call ends with the call, so that no work in a driver continues.
//
// Fails when ask or releaseNow does not end it.
func TestContextOfACallEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		var calls []context.Context
		note := func(ctx context.Context) { calls = append(calls, ctx) }
		h.spy.onAcquire, h.spy.onRelease = note, note
		h.take(t, "job", 1).Release(bg)
		for i, ctx := range calls {
			if ctx.Err() != context.Canceled {
				t.Errorf("call %d: %v after it, want it cancelled", i, ctx.Err())
			}
		}
		if len(calls) != 2 {
			t.Errorf("%d calls, want 2", len(calls))
		}
	})
}
