package dlock

import (
	"context"
	"sync"
	"time"
)

// A lazyDeadline is a context that ends with its parent, at a time, or when end is called. Unlike
// context.WithDeadline it allocates and starts a timer only when a caller waits for its end: a
// store in memory never does, a driver only while it waits for a free connection.
//
// It exists for one figure of proof/benchmarks/COSTS.md: a tick that finds every slot held, as most
// ticks of a fleet do, makes three allocations above those of the store. context.WithDeadline would
// make four more. TestAllocationsOfAnAttempt and timer.TestAllocationsOfATickThatFindsItFull count
// them.
type lazyDeadline struct {
	parent context.Context
	at     time.Time

	mu     sync.Mutex
	ended  bool
	inner  context.Context // from context.WithDeadline; nil until it is needed
	cancel context.CancelFunc
}

func (l *lazyDeadline) Deadline() (time.Time, bool) {
	if at, ok := l.parent.Deadline(); ok {
		return earlier(at, l.at), true
	}
	return l.at, true
}

func (l *lazyDeadline) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.derived().Done()
}

// Ends returns what ends the context: its parent, and a time. Package redislock looks for this
// method (its boundedContext), and waits for both instead of Done, which would start a timer for
// each call.
func (l *lazyDeadline) Ends() (parent context.Context, at time.Time) { return l.parent, l.at }

func (l *lazyDeadline) Err() error { return l.current().Err() }

// Value also finds the inner context, which package context looks for by a key of its own.
func (l *lazyDeadline) Value(key any) any { return l.current().Value(key) }

// current returns the parent until the context has ended or a caller waits for its end, then the
// inner context.
func (l *lazyDeadline) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil && !l.ended && time.Now().Before(l.at) {
		return l.parent
	}
	return l.derived()
}

// derived returns the inner context. Called with mu held.
func (l *lazyDeadline) derived() context.Context {
	if l.inner == nil {
		l.inner, l.cancel = context.WithDeadline(l.parent, l.at)
		if l.ended {
			l.cancel()
		}
	}
	return l.inner
}

// end frees the resources of the context. Call it when the context is no longer needed.
func (l *lazyDeadline) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.cancel != nil {
		l.cancel()
	}
}
