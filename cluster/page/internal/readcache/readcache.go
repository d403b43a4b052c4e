// Package readcache lets many viewers share one read, and keeps what was read last: a viewer gets
// it while it is read anew behind him. There is one read of a key at a time, it gets 5 s, and none
// begins unless somebody asks.
package readcache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
)

const (
	// TTL is for how long a result is shared.
	TTL = time.Second
	// Patience is for how long a viewer waits for what he looks at, however many reads that takes.
	Patience = 300 * time.Millisecond

	readTimeout = 5 * time.Second
	// maxBackOff bounds the time between reads that fail: TTL at first, then twice as long each.
	maxBackOff = 4 * time.Second
	// A result that is older than maxAge is not passed off as the latest.
	maxAge = 5 * time.Second
	// evictAbove is from how many keys on a new one evicts those whose result is stale: keys may be
	// made of what strangers type. There can be more, if all were read within TTL.
	evictAbove = 256
)

// ErrNoAnswer is the error of a Result if the read has not ended, and nothing was read lately.
var ErrNoAnswer = errors.New("no answer yet")

// A Cache has the results of reads, by keys. The zero value is ready.
type Cache[T any] struct {
	// Always: each Get begins a read, unless one is under way or the last one failed. It is for
	// sources that share reads themselves. Default: results are shared for TTL.
	Always bool
	// TTL is for how long results are shared, if that is longer than the constant TTL.
	TTL time.Duration

	mu      sync.Mutex
	entries map[string]*entry[T]
}

// A Result is what was read last.
type Result[T any] struct {
	Value T
	At    time.Time // when it was read; zero: never
	Err   error     // of the last try
}

type entry[T any] struct {
	last     Result[T]
	triedAt  time.Time // when the last read ended; zero: never, or before Forget
	slow     bool      // it took longer than Patience
	failures int       // in a row
	changed  bool      // Forget was called since it was read
	// done is closed when the read under way has ended. Nil: there is none, or Forget was called
	// since it began, and its result is dropped.
	done  chan struct{}
	began time.Time // of that read
}

type patienceKey struct{}

// WithPatience returns a context with which all calls of Get together wait for at most d from now.
// A context that has a patience keeps it: tests wait for longer than viewers do.
func WithPatience(ctx context.Context, d time.Duration) context.Context {
	if _, has := ctx.Value(patienceKey{}).(time.Time); has {
		return ctx
	}
	return context.WithValue(ctx, patienceKey{}, time.Now().Add(d))
}

// Get returns what load has read within the last TTL. If that has to be read first, Get waits for
// it as long as ctx has patience: see WithPatience. It does not wait at all if the last read took
// longer than Patience: then the Result is that of the last read, and the next Get has the new one.
// The read goes on if ctx ends, because others may wait for it.
func (c *Cache[T]) Get(ctx context.Context, key string, load func(context.Context) (T, error)) Result[T] {
	c.mu.Lock()
	e := c.begin(key, load)
	done, left := e.done, e.left(ctx)
	c.mu.Unlock()
	var ended error
	if done != nil {
		ended = wait(ctx, done, left)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	result := e.last
	// What is a few seconds old says so by its age, unless it is from before a change. An error of
	// the last try says more.
	if known := result.Err != nil || !e.changed && time.Since(result.At) <= maxAge; ended != nil &&
		!(errors.Is(ended, ErrNoAnswer) && known) {
		result.Err = ended
	}
	return result
}

// Begin begins the read for which the next Get may have to wait.
func (c *Cache[T]) Begin(key string, load func(context.Context) (T, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(key, load)
}

// begin is called with mu held.
func (c *Cache[T]) begin(key string, load func(context.Context) (T, error)) *entry[T] {
	e := c.entries[key]
	if e == nil {
		e = &entry[T]{}
		c.evictStale()
		c.entries[key] = e
	}
	if e.done == nil && c.due(e) {
		e.done, e.began = make(chan struct{}), time.Now()
		go c.read(e, e.done, load)
	}
	return e
}

// left returns for how long a viewer waits for the read under way; negative: until it ends. All
// viewers of a read that takes long together wait for it once.
func (e *entry[T]) left(ctx context.Context) time.Duration {
	until, has := ctx.Value(patienceKey{}).(time.Time)
	switch {
	case !has:
		return -1
	case e.slow:
		return 0
	}
	patience := time.Until(until)
	if patience <= Patience { // else it is that of a test
		patience = min(patience, Patience-time.Since(e.began))
	}
	return max(0, patience)
}

// wait waits for a read, and returns nil when it has ended.
func wait(ctx context.Context, done chan struct{}, left time.Duration) error {
	var out <-chan time.Time
	if left >= 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		out = timer.C
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-out:
		return ErrNoAnswer
	}
}

// Forget makes the next Get read anew, also if a read is under way, which may have begun before
// something was changed.
func (c *Cache[T]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.triedAt, e.slow, e.changed, e.done = time.Time{}, false, true, nil
	}
}

func (c *Cache[T]) read(e *entry[T], done chan struct{}, load func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	began := time.Now()
	var value T
	err := guard.Goexit("read") // unless load returns
	defer func() {
		c.ended(e, done, Result[T]{value, began, err})
		close(done)
	}()
	err = guard.Call("read", func() (err error) { value, err = load(ctx); return err })
}

// ended keeps the result of a read. If it failed, what was read before stays.
func (c *Cache[T]) ended(e *entry[T], done chan struct{}, r Result[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.done != done {
		return
	}
	e.triedAt, e.last.Err, e.done = time.Now(), mask.Error(r.Err), nil
	e.slow = e.triedAt.Sub(r.At) > Patience
	if r.Err != nil {
		e.failures++
		return
	}
	e.last.Value, e.last.At, e.failures, e.changed = r.Value, r.At, 0, false
}

// due reports whether the next read may begin.
func (c *Cache[T]) due(e *entry[T]) bool {
	wait := max(TTL, c.TTL)
	switch {
	case e.failures > 0:
		wait = min(TTL<<min(e.failures-1, 8), maxBackOff)
	case c.Always:
		return true
	}
	return time.Since(e.triedAt) >= wait
}

// evictStale makes room for a key. Called with mu held.
func (c *Cache[T]) evictStale() {
	if c.entries == nil {
		c.entries = map[string]*entry[T]{}
	}
	if len(c.entries) < evictAbove {
		return
	}
	for key, e := range c.entries {
		if e.done == nil && time.Since(e.triedAt) >= TTL {
			delete(c.entries, key)
		}
	}
}
