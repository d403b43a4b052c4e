// Package shared has what the page and its sections share. Many viewers share one read: callers
// that come while it is under way wait for it, and for a while all callers get its result, or its
// error.
package shared

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Age is for how long a result is shared.
const Age = time.Second

const timeout = 5 * time.Second // of a read

// Reads are what was read, by keys. The zero value is ready.
type Reads[T any] struct {
	mu    sync.Mutex
	known map[string]*read[T]
}

// A Result is what was read last.
type Result[T any] struct {
	Value T
	At    time.Time // when it was read; zero: never
	Err   error     // of the last try
}

type read[T any] struct {
	last    Result[T]
	triedAt time.Time
	// done is closed when the one under way has ended. Nil: there is none, or Forget was called
	// since it began, and its result is dropped.
	done chan struct{}
}

// most is how many keys are remembered: keys may be made of what strangers type.
const most = 256

// Get returns what load has read within the last second. The read goes on if ctx ends, because
// others may wait for it; the Result is then that of the read before.
func (r *Reads[T]) Get(ctx context.Context, key string, load func(context.Context) (T, error)) Result[T] {
	r.mu.Lock()
	k := r.known[key]
	if k == nil {
		k = &read[T]{}
		r.forget()
		r.known[key] = k
	}
	if k.done == nil && (k.triedAt.IsZero() || time.Since(k.triedAt) >= Age) {
		k.done = make(chan struct{})
		go r.read(k, k.done, load)
	}
	done := k.done
	r.mu.Unlock()
	var ended error
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			ended = context.Cause(ctx)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	result := k.last
	if ended != nil {
		result.Err = ended
	}
	return result
}

// Forget makes the next Get read anew, also if a read is under way, which may have begun before
// something was changed.
func (r *Reads[T]) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.known {
		k.triedAt, k.done = time.Time{}, nil
	}
}

func (r *Reads[T]) read(k *read[T], done chan struct{}, load func(context.Context) (T, error)) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	began := time.Now()
	value, err := guarded(ctx, load)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.done != done {
		return
	}
	k.triedAt, k.last.Err, k.done = time.Now(), err, nil
	if err == nil {
		k.last.Value, k.last.At = value, began
	}
}

func guarded[T any](ctx context.Context, load func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the read panicked: %v", p)
		}
	}()
	return load(ctx)
}

// forget makes room for a key. Called with mu held.
func (r *Reads[T]) forget() {
	if r.known == nil {
		r.known = map[string]*read[T]{}
	}
	if len(r.known) < most {
		return
	}
	for key, k := range r.known {
		if k.done == nil && time.Since(k.triedAt) >= Age {
			delete(r.known, key)
		}
	}
}
