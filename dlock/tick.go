package dlock

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// This file is for schedulers: hosts agree on who runs a tick in the same round trip that takes the
// slot.

// TryAcquireTick takes a free slot and one start of the tick in one atomic step: neither is taken
// without the other. See TryAcquire.
func (s Semaphore) TryAcquireTick(ctx context.Context, tick driver.Tick) (*Lease, error) {
	return s.session.acquire(ctx, time.Now(), s, &tick)
}

// Info returns the store's last Info about the name.
func (l *Lease) Info() driver.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// MarkSucceeded records that the work ended well. It does not end the lease. Release passes it on
// to the store, whose later answers about the name carry it as Info.SuccessAge.
func (l *Lease) MarkSucceeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.succeeded = true
}

// PreviousExpired reports whether the previous holder of the slot let its lease expire without
// releasing it, for instance because it was killed. False also if the store cannot tell.
func (l *Lease) PreviousExpired() bool { return l.grant.PreviousExpired }
