package dlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Semaphore is a name with a number of slots: at most that many leases are valid at once among
// all who share the store. It is a small value; make one where you need it.
type Semaphore struct {
	session *Session
	name    string
	slots   int
}

// Semaphore returns the semaphore of that name with slots 1 to MaxSlots. The number is not part of
// the name: hosts that declare different numbers share the slots they have in common.
func (s *Session) Semaphore(name string, slots int) Semaphore {
	// Request.Slots == 0 means a mutex: a caller's 0 must be refused, not turned into one.
	if slots == 0 {
		slots = -1
	}
	return Semaphore{session: s, name: name, slots: slots}
}

// A Mutex is a name that at most one lease is valid for at once.
type Mutex struct {
	session *Session
	name    string
}

// Mutex returns the mutex of that name. It has nothing to do with a semaphore of the same name.
func (s *Session) Mutex(name string) Mutex { return Mutex{session: s, name: name} }

// TryAcquire takes a free slot, or returns a *NotAcquiredError at once. It returns within the
// session's StoreTimeout; a *StoreError means that the store failed or did not answer. A grant that
// may have been made all the same is given back in the background.
func (m Semaphore) TryAcquire(ctx context.Context) (*Lease, error) {
	return m.session.acquire(ctx, m.name, m.slots, nil)
}

// TryAcquireTick takes a free slot and one start of the tick in one atomic step; neither is taken
// without the other.
func (m Semaphore) TryAcquireTick(ctx context.Context, tick Tick) (*Lease, error) {
	return m.session.acquire(ctx, m.name, m.slots, &tick)
}

// Acquire waits for a free slot until ctx ends. It asks again and again, after a pause that grows
// to one second; it also waits out a store that fails. There is no queue: who asks first need not
// get it first. When ctx ends, the error matches its cause and tells what the store said last.
func (m Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	return wait(ctx, m.name, m.TryAcquire)
}

// TryAcquire takes the mutex, or returns a *NotAcquiredError at once. See Semaphore.TryAcquire.
func (m Mutex) TryAcquire(ctx context.Context) (*Lease, error) {
	return m.session.acquire(ctx, m.name, 0, nil)
}

// Acquire waits for the mutex until ctx ends. See Semaphore.Acquire.
func (m Mutex) Acquire(ctx context.Context) (*Lease, error) {
	return wait(ctx, m.name, m.TryAcquire)
}

const (
	firstWait = 10 * time.Millisecond
	lastWait  = time.Second
)

func wait(ctx context.Context, name string, try func(context.Context) (*Lease, error)) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: acquire: %w", name, context.Cause(ctx))
	}
	pause := firstWait
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	var last error
	for {
		lease, err := try(ctx)
		if err == nil {
			return lease, nil
		}
		_, failed := errors.AsType[*StoreError](err)
		if answered := failed || errors.Is(err, ErrNotAcquired); answered {
			last = err
		} else if ctx.Err() == nil {
			return nil, err
		}
		timer.Reset(pause/2 + rand.N(pause)) // waiters who started together drift apart
		pause = min(2*pause, lastWait)
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
