// Package readcache lets many viewers share one read: callers that come while it is under way wait
// for it, and for TTL all callers get its result, or its error without the secrets in it.
package readcache

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
)

// TTL is for how long a result is shared.
const TTL = time.Second

const (
	readTimeout = 5 * time.Second
	// evictAbove is from how many keys on a new one evicts those whose result is stale: keys may be
	// made of what strangers type. There can be more, if all were read within TTL.
	evictAbove = 256
)

// A Cache has the results of reads, by keys. The zero value is ready.
type Cache[T any] struct {
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
	last    Result[T]
	triedAt time.Time
	// done is closed when the read under way has ended. Nil: there is none, or Forget was called
	// since it began, and its result is dropped.
	done chan struct{}
}

// Get returns what load has read within the last TTL. The read goes on if ctx ends, because others
// may wait for it; the Result is then that of the read before.
func (c *Cache[T]) Get(ctx context.Context, key string, load func(context.Context) (T, error)) Result[T] {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil {
		e = &entry[T]{}
		c.evictStale()
		c.entries[key] = e
	}
	if e.done == nil && e.stale() {
		e.done = make(chan struct{})
		go c.read(e, e.done, load)
	}
	done := e.done
	c.mu.Unlock()
	var ended error
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			ended = context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	result := e.last
	if ended != nil {
		result.Err = ended
	}
	return result
}

// Forget makes the next Get read anew, also if a read is under way, which may have begun before
// something was changed.
func (c *Cache[T]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.triedAt, e.done = time.Time{}, nil
	}
}

func (c *Cache[T]) read(e *entry[T], done chan struct{}, load func(context.Context) (T, error)) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	began := time.Now()
	value, err := guarded(ctx, load)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.done != done {
		return
	}
	e.triedAt, e.last.Err, e.done = time.Now(), mask.Error(err), nil
	if err == nil {
		e.last.Value, e.last.At = value, began
	}
}

// guarded calls load, and returns its panic as an error.
func guarded[T any](ctx context.Context, load func(context.Context) (T, error)) (value T, err error) {
	err = guard.Call("read", func() (err error) { value, err = load(ctx); return err })
	return value, err
}

func (e *entry[T]) stale() bool { return time.Since(e.triedAt) >= TTL }

// evictStale makes room for a key. Called with mu held.
func (c *Cache[T]) evictStale() {
	if c.entries == nil {
		c.entries = map[string]*entry[T]{}
	}
	if len(c.entries) < evictAbove {
		return
	}
	for key, e := range c.entries {
		if e.done == nil && e.stale() {
			delete(c.entries, key)
		}
	}
}
