package dlock

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// This file is for schedulers. In one round trip, a host takes a slot and the hosts agree on who
// runs a tick.

// TryAcquireTick takes a free slot and one start of the tick in one atomic step, or neither of
// them. See TryAcquire.
func (s Semaphore) TryAcquireTick(ctx context.Context, tick driver.Tick) (*Lease, error) {
	return s.session.acquire(ctx, time.Now(), s, &tick)
}

// Info returns the store's last Info about the name.
func (l *Lease) Info() driver.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// MarkSucceeded records that the work succeeded. It does not end the lease. Release passes this to
// the store, whose later answers about the name carry it as Info.SuccessAge.
func (l *Lease) MarkSucceeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.succeeded = true
}

// PreviousExpired reports whether the slot's previous lease expired without a release, for example
// because its process was killed. It is false if the store cannot tell.
func (l *Lease) PreviousExpired() bool { return l.grant.PreviousExpired }
