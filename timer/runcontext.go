package timer

import (
	"context"
	"sync"
	"time"
)

// A runContext is the context of a run. It creates contexts of the standard library only when
// something other than the run and its deadline is first asked for. A handler that never waits
// returns before that.
//
// Creating two contexts and a timer for every run costs more than everything else in a run: without
// a store, one whose handler does not ask for them takes 12 µs and 5 allocations, and one whose
// handler does 27 µs and 15 (BenchmarkAllocationsOfContexts).
type runContext struct {
	run *Run // whose host has the context of all runs

	mu     sync.Mutex
	made   context.Context         // nil: not yet
	cancel context.CancelCauseFunc // ends made
	stop   context.CancelFunc      // ends made, and frees its timer
	over   bool                    // the run has ended
}

type runKey struct{}

// base returns the context of all runs.
func (c *runContext) base() context.Context { return c.run.host.base }

// Deadline implements context.Context.
func (c *runContext) Deadline() (time.Time, bool) { return c.run.endsAt(), true }

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.context().Done() }

// Err implements context.Context.
func (c *runContext) Err() error { return c.context().Err() }

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return c.run
	}
	if t := c.run.trigger; t != nil && t.values != nil {
		if value := t.values.Value(key); value != nil {
			return value
		}
	}
	return c.context().Value(key)
}

func (c *runContext) String() string { return "timer.Run(" + c.run.Timer() + ")" }

func (c *runContext) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.made != nil:
	case c.over: // the end of the run came first, whatever has happened since
		c.made, c.cancel = context.WithCancelCause(context.WithoutCancel(c.base()))
		c.cancel(nil)
	default:
		c.made, c.cancel = context.WithCancelCause(c.base())
		c.made, c.stop = context.WithDeadlineCause(c.made, c.run.endsAt(), ErrMaxRunTime)
	}
	return c.made
}

// lose ends the context of a run that has lost its lease.
func (c *runContext) lose(cause error) {
	c.context()
	c.cancel(cause)
}

// cause returns why the context has ended; nil: it has not. It creates no context unless it has to.
func (c *runContext) cause() error {
	c.mu.Lock()
	unasked := c.made == nil && !c.over
	c.mu.Unlock()
	if unasked && c.base().Err() == nil && time.Now().Before(c.run.endsAt()) {
		return nil
	}
	return context.Cause(c.context())
}

// end ends the context when the run has ended.
func (c *runContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.stop != nil { // release what the parent holds
		c.stop()
		c.cancel(nil)
	}
}
