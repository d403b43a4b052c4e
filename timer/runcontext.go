package timer

import (
	"context"
	"sync"
	"time"
)

// A runContext is the context of a run. What it consists of is made when somebody first asks more of it than which run it is and when it ends:
// a handler that never does is over before that would be made.
type runContext struct {
	run  *Run
	base context.Context // of all runs

	mu     sync.Mutex
	made   context.Context         // nil: not yet
	cancel context.CancelCauseFunc // nil before it is made, and for a run that has no lease to lose
	stop   context.CancelFunc      // nil before it is made
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
	if c.made != nil {
		return c.made
	}
	c.made = c.base
	if !c.run.local {
		c.made, c.cancel = context.WithCancelCause(c.made)
	}
	c.made, c.stop = context.WithDeadlineCause(c.made, c.run.ends(), ErrMaxRunTime)
	if c.over {
		c.endMade()
	}
	return c.made
}

// lose ends the context, as that of a run that has lost its lease.
func (c *runContext) lose(cause error) {
	c.context()
	c.cancel(cause)
}

// cause is why the context has ended; nil: it has not. If there is no need to, it makes nothing.
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
	if c.made != nil {
		c.endMade()
	}
}

// endMade leaves nothing behind with the context of all runs. Called with mu held.
func (c *runContext) endMade() {
	c.stop()
	if c.cancel != nil {
		c.cancel(nil)
	}
}
