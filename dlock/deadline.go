package dlock

import (
	"context"
	"sync"
	"time"
)

// A bounded context ends with its parent, at a time, or when it is over. Unlike one of
// context.WithDeadline it starts a timer only if somebody waits for its end: a store in memory
// never does, a driver only when it waits for a connection.
type bounded struct {
	parent context.Context
	at     time.Time

	mu     sync.Mutex
	over   bool
	inner  context.Context // of context.WithDeadline, when it is needed
	cancel context.CancelFunc
}

func (c *bounded) Deadline() (time.Time, bool) {
	if at, ok := c.parent.Deadline(); ok {
		return earlier(at, c.at), true
	}
	return c.at, true
}

func (c *bounded) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

// Ends is what ends the context: its parent, and the time. Who waits for both needs no Done, which
// would be made for each call.
func (c *bounded) Ends() (parent context.Context, at time.Time) { return c.parent, c.at }

func (c *bounded) Err() error        { return c.current().Err() }
func (c *bounded) Value(key any) any { return c.current().Value(key) } // package context looks for the one that ends here, too

// current is what the context stands for: its parent, until somebody waits, its time comes or it is
// over.
func (c *bounded) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil && !c.over && time.Now().Before(c.at) {
		return c.parent
	}
	return c.made()
}

// made must be called with mu held.
func (c *bounded) made() context.Context {
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.at)
		if c.over {
			c.cancel()
		}
	}
	return c.inner
}

// end is to be called when the context is no longer needed.
func (c *bounded) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}
