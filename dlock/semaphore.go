package dlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Semaphore is a name with a number of slots. Among all processes that share the store, at most
// that many leases are valid at once. A Semaphore is a small value; create one where you need it.
type Semaphore struct {
	session *Session
	name    string
	slots   int
	shared  []SemaphoreSpec
}

// Semaphore returns the semaphore of that name with 1 to MaxSlots slots. The number of slots is not
// part of the name: processes that declare different numbers share the slots that both have.
func (s *Session) Semaphore(name string, slots int) Semaphore {
	// A Request with 0 slots is for a mutex, so the caller's 0 is replaced by an invalid number.
	if slots == 0 {
		slots = -1
	}
	return Semaphore{session: s, name: name, slots: slots}
}

// With returns a semaphore whose TryAcquire and Acquire also take a slot of each other semaphore,
// in one atomic step: all of them or none. The Lease is valid while it holds all slots and is lost
// with any of them. If a semaphore has a Rate, the rate also limits the starts: see
// [driver.SemaphoreSpec]. The store must be a [driver.SharedLimiter], and for a Rate a
// [driver.RateLimiter]. Otherwise nothing is acquired, and the error matches
// [errors.ErrUnsupported].
func (s Semaphore) With(others ...SemaphoreSpec) Semaphore {
	s.shared = slices.Clone(others)
	return s
}

// A Mutex is a lock with at most one valid lease.
type Mutex struct {
	session *Session
	name    string
}

// Mutex returns the mutex of that name. A semaphore of the same name is a different lock.
func (s *Session) Mutex(name string) Mutex { return Mutex{session: s, name: name} }

// TryAcquire takes a free slot or returns a *NotAcquiredError. It does not wait for a slot and
// returns within the session's StoreTimeout. A *StoreError means that the store failed or did not
// answer. If the store granted a slot nevertheless, the session releases it in the background.
func (s Semaphore) TryAcquire(ctx context.Context) (*Lease, error) {
	return s.try(ctx, time.Now())
}

func (s Semaphore) try(ctx context.Context, began time.Time) (*Lease, error) {
	return s.session.acquire(ctx, began, s, nil)
}

// Acquire waits for a free slot until ctx ends. It retries after pauses that grow from 10 ms to 1 s
// and vary randomly by up to half, even while the store fails. If a lease is about to end, for
// example that of a dead host, it retries within half a second of the end. There is no queue: the
// process that has waited longest may get a slot last. When ctx ends, the error matches its cause
// and includes the last answer of the store.
func (s Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	return wait(ctx, s.name, s.try)
}

// TryAcquire takes the mutex or returns a *NotAcquiredError without waiting. See
// Semaphore.TryAcquire.
func (m Mutex) TryAcquire(ctx context.Context) (*Lease, error) {
	return m.try(ctx, time.Now())
}

func (m Mutex) try(ctx context.Context, began time.Time) (*Lease, error) {
	return m.session.acquire(ctx, began, Semaphore{name: m.name}, nil)
}

// Acquire waits for the mutex until ctx ends. See Semaphore.Acquire.
func (m Mutex) Acquire(ctx context.Context) (*Lease, error) {
	return wait(ctx, m.name, m.try)
}

const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

func wait(ctx context.Context, name string, try func(context.Context, time.Time) (*Lease, error)) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: acquire: %w", name, context.Cause(ctx))
	}
	began, pause := time.Now(), minPause
	timer := time.NewTimer(maxPause)
	defer timer.Stop()
	var last error
	for {
		lease, err := try(ctx, began)
		if err == nil {
			return lease, nil
		}
		_, failed := errors.AsType[*StoreError](err)
		if answered := failed || errors.Is(err, ErrNotAcquired); answered {
			last = err
		} else if ctx.Err() == nil {
			return nil, err
		}
		timer.Reset(retryIn(pause, err))
		pause = min(2*pause, maxPause)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		}
		if last == nil {
			return nil, fmt.Errorf("%s: acquire: %w", name, context.Cause(ctx))
		}
		return nil, fmt.Errorf("%s: acquire: %w; last answer: %w", name, context.Cause(ctx), last)
	}
}

// retryIn returns the pause before a waiter's next attempt. The jitter separates waiters that
// started together.
func retryIn(pause time.Duration, err error) time.Duration {
	in := pause/2 + rand.N(pause)
	no, refused := errors.AsType[*NotAcquiredError](err)
	switch {
	case refused && no.Reason == ReasonLimitRate: // the slot cannot become free earlier
		in = no.ExpiresIn + rand.N(min(pause, no.Shared.Per/50)+1)
	case refused && no.ExpiresIn > 0:
		in = min(in, no.ExpiresIn+rand.N(pause/2)) // in case the lease is not extended
	}
	return in
}
