package dlock

import (
	"context"
	"sync"
	"time"
)

// A lazyDeadline is a context that ends with its parent, at a time, or when end is called. Unlike
// context.WithDeadline it allocates and starts a timer only if somebody waits for its end: a store
// in memory never does, a driver only while it waits for a free connection.
//
// It is there for one figure of docs/performance.md: a tick that finds every slot held, which is
// what most ticks of a fleet are, makes three allocations above those of the store.
// context.WithDeadline would make four more. TestAllocationsOfAnAttempt and
// timer.TestAllocationsOfATickThatFindsItFull count them.
type lazyDeadline struct {
	parent context.Context
	at     time.Time

	mu     sync.Mutex
	ended  bool
	inner  context.Context // from context.WithDeadline; nil until it is needed
	cancel context.CancelFunc
}

func (c *lazyDeadline) Deadline() (time.Time, bool) {
	if at, ok := c.parent.Deadline(); ok {
		return earlier(at, c.at), true
	}
	return c.at, true
}

func (c *lazyDeadline) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.derived().Done()
}

// Ends returns what ends the context: its parent, and a time. Package redislock looks for this
// method (its boundedContext), and waits for both instead of Done, which would start a timer for
// each call.
func (c *lazyDeadline) Ends() (parent context.Context, at time.Time) { return c.parent, c.at }

func (c *lazyDeadline) Err() error { return c.current().Err() }

// Value also finds the inner context, which package context looks for by a key of its own.
func (c *lazyDeadline) Value(key any) any { return c.current().Value(key) }

// current returns the parent, or the inner context if somebody waits for the end or it has come.
func (c *lazyDeadline) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil && !c.ended && time.Now().Before(c.at) {
		return c.parent
	}
	return c.derived()
}

// derived returns the inner context. Called with mu held.
func (c *lazyDeadline) derived() context.Context {
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.at)
		if c.ended {
			c.cancel()
		}
	}
	return c.inner
}

// end frees what the context uses. Call it when the context is no longer needed.
func (c *lazyDeadline) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}
