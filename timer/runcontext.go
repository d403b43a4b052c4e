package timer

import (
	"context"
	"sync"
	"time"
)

// A runContext is the context of a run. The contexts of the standard library that it consists of
// are made when somebody first asks for more than the run and its deadline. A handler that calls
// nothing which waits is over before that.
//
// It is here for a published target: a million timers fire with a p99 lateness of 10 ms ("p99
// lateness, 1,000,000 timers" in benchmarks/). Two contexts and a clock made for every run take
// more processor time than everything else that a run costs.
type runContext struct {
	run  *Run
	base context.Context // of all runs

	mu     sync.Mutex
	made   context.Context         // nil: not yet
	cancel context.CancelCauseFunc // ends made
	stop   context.CancelFunc      // ends made, and frees its clock
	over   bool                    // the run is
}

type runKey struct{}

// Deadline implements context.Context.
func (c *runContext) Deadline() (time.Time, bool) { return c.run.ends(), true }

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.context().Done() }

// Err implements context.Context.
func (c *runContext) Err() error { return c.context().Err() }

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return c.run
	}
	return c.context().Value(key)
}

func (c *runContext) String() string { return "timer.Run(" + c.run.Timer() + ")" }

func (c *runContext) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.made != nil:
	case c.over: // that came first, whatever has happened since
		c.made, c.cancel = context.WithCancelCause(context.WithoutCancel(c.base))
		c.cancel(nil)
	default:
		c.made, c.cancel = context.WithCancelCause(c.base)
		c.made, c.stop = context.WithDeadlineCause(c.made, c.run.ends(), ErrMaxRunTime)
	}
	return c.made
}

// lose ends the context, as that of a run that has lost its lease.
func (c *runContext) lose(cause error) {
	c.context()
	c.cancel(cause)
}

// cause is why the context has ended; nil: it has not. It makes nothing if there is no need to.
func (c *runContext) cause() error {
	c.mu.Lock()
	unasked := c.made == nil && !c.over
	c.mu.Unlock()
	if unasked && c.base.Err() == nil && time.Now().Before(c.run.ends()) {
		return nil
	}
	return context.Cause(c.context())
}

// end ends the context for good: the run is over.
func (c *runContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.stop != nil { // nothing is left behind with the context of all runs
		c.stop()
		c.cancel(nil)
	}
}
