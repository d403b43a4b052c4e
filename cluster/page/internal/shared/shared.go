// Package shared has many viewers share one read: whoever comes while it is under way waits for it,
// and for a while everybody gets what was read, or that it failed.
package shared

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Reads are what was read, by keys. Make one as a literal.
type Reads[T any] struct {
	Age     time.Duration // for so long it is shared
	Timeout time.Duration // of a read

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
	done    chan struct{} // closed when the one under way has ended; nil: there is none
}

// most is how many keys are remembered: keys may be made of what strangers type.
const most = 256

// Get returns what load has read within the last Age. The read belongs to nobody: it goes on if ctx
// ends, and then the Result is what was read before.
func (r *Reads[T]) Get(ctx context.Context, key string, load func(context.Context) (T, error)) Result[T] {
	r.mu.Lock()
	k := r.known[key]
	if k == nil {
		k = &read[T]{}
		r.forget()
		r.known[key] = k
	}
	if k.done == nil && (k.triedAt.IsZero() || time.Since(k.triedAt) >= r.Age) {
		k.done = make(chan struct{})
		go r.read(k, load)
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

// Forget has the next Get read anew, for those who have just changed something.
func (r *Reads[T]) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.known {
		k.triedAt = time.Time{}
	}
}

func (r *Reads[T]) read(k *read[T], load func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()
	began := time.Now()
	value, err := guarded(ctx, load)
	r.mu.Lock()
	defer r.mu.Unlock()
	k.triedAt, k.last.Err = time.Now(), err
	if err == nil {
		k.last.Value, k.last.At = value, began
	}
	close(k.done)
	k.done = nil
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
		if k.done == nil && time.Since(k.triedAt) >= r.Age {
			delete(r.known, key)
		}
	}
}
