package dlock

import (
	"context"
	"sync"
	"time"
)

// A lazyDeadline is a context that ends with its parent, at a given time, or when end is called.
// context.WithDeadline allocates memory and starts a timer. A lazyDeadline does so only when a
// caller waits for its end. A store in memory never waits, and a driver waits only for a free
// connection.
//
// This saves allocations in the most frequent attempt of a fleet, a tick that finds every slot
// held. Such a tick makes three allocations above those of the store (see
// proof/benchmarks/COSTS.md). context.WithDeadline would add four. TestAllocationsOfAnAttempt and
// timer.TestAllocationsOfATickThatFindsItFull count them.
type lazyDeadline struct {
	parent context.Context
	at     time.Time

	mu     sync.Mutex
	ended  bool
	inner  context.Context // from context.WithDeadline; nil until needed
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

// Ends returns the parent and the time that end the context. Package redislock looks for this
// method (its boundedContext) and waits for both. If it waited for Done, each call would start a
// timer.
func (l *lazyDeadline) Ends() (parent context.Context, at time.Time) { return l.parent, l.at }

func (l *lazyDeadline) Err() error { return l.current().Err() }

// Value also looks in the inner context, because package context finds it by a private key.
func (l *lazyDeadline) Value(key any) any { return l.current().Value(key) }

// current returns the inner context if the context has ended or a caller waits for its end.
// Otherwise it returns the parent.
func (l *lazyDeadline) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil && !l.ended && time.Now().Before(l.at) {
		return l.parent
	}
	return l.derived()
}

// derived returns the inner context. The caller holds mu.
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
