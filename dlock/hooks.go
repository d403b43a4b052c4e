package dlock

import (
	"context"
	"errors"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Hooks report what a Session does, for metrics, logs and traces. Any of them may be nil. A panic
// in a hook is ignored.
//
// Called reports calls to the store, the other hooks report leases. The hooks of leases are called
// in the order in which things happened, one at a time, on a goroutine of their own, which exists
// while there is something to report. So they may be slow, and may call the Session. Up to 10,000
// events wait while a hook is busy; further ones are dropped, and Session.DroppedEvents counts
// them. Session.Close spends up to StoreTimeout on the events that still wait; later events are not
// reported. The end of each acquired lease is reported once, with Lost or with Released.
type Hooks struct {
	// Called is called after each call to the store, before the Session acts on the answer. It is
	// called without locks, on the goroutine that called the store, and so concurrently. It must
	// not block, because a lease may be waiting to be renewed, and must not call the Session.
	Called func(StoreCall)

	// Acquired is called when a lease was acquired. A refusal is reported by Called only.
	Acquired func(LeaseAcquired)

	// Lost is called when a lease ended before it was released.
	Lost func(LeaseEnded)

	// Released is called when Lease.Release has returned, unless the lease was lost before.
	Released func(LeaseEnded)
}

// LeaseAcquired is a lease that was acquired.
type LeaseAcquired struct {
	Name  string
	Slot  int
	Fence Fence
	Wait  time.Duration // from the call of Acquire or TryAcquire until it was acquired
	// PreviousExpired: see Lease.PreviousExpired.
	PreviousExpired bool
}

// LeaseEnded is a lease that was lost or released.
type LeaseEnded struct {
	Name    string
	Slot    int
	Fence   Fence
	HeldFor time.Duration // until it was lost, or the call of Release
	Err     error         // lost: a *LostError; released: what Release returned
}

// A StoreCall is one call to the store that has returned.
type StoreCall struct {
	Op      StoreOp
	Name    string          // of the lock; of several, of the first: they are all on one shard
	Grants  []driver.Grant  // to be extended or released, of a Lease perhaps several; do not keep or change them
	Results []driver.Result // one per grant if Err is nil; do not keep or change them
	// Context has the values of the context that the caller passed, such as the span of a trace. It
	// has none in a heartbeat. The call is over, so whether it has ended means nothing.
	Context   context.Context
	StartedAt time.Time     // on the local clock
	Took      time.Duration // how long the call took
	// Err is nil, or a *NotAcquiredError if the store refused, which is an answer and no failure,
	// or any other error. A panic of the store and an answer that makes no sense are errors, too.
	Err error
	// Canceled reports that the caller went away before the store answered. Err then says nothing
	// about the store.
	Canceled bool
}

// Refused reports whether the store answered, with a refusal. A nil *NotAcquiredError is none.
func (s StoreCall) Refused() bool {
	no, ok := errors.AsType[*NotAcquiredError](s.Err)
	return errors.Is(s.Err, ErrNotAcquired) && (!ok || no != nil)
}

// DroppedEvents returns how many events of leases were dropped because hooks could not keep up.
func (s *Session) DroppedEvents() uint64 { return s.events.Dropped() }

// acquired reports a new lease to the hooks. Called with mu held, before the lease can end.
func (s *Session) acquired(l *Lease, began time.Time) {
	hook := s.hooks.Acquired
	if hook == nil {
		return
	}
	e := LeaseAcquired{Name: l.Name(), Slot: l.Slot(), Fence: l.Fence(), Wait: l.acquiredAt.Sub(began),
		PreviousExpired: l.PreviousExpired()}
	s.events.Put("Acquired", func() { hook(e) })
}

// leaseEnded reports the end of a lease to a hook. It runs no user code, so a mutex may be held.
func (s *Session) leaseEnded(name string, hook func(LeaseEnded), l *Lease, endedAt time.Time, err error) {
	if hook == nil {
		return
	}
	e := LeaseEnded{Name: l.Name(), Slot: l.Slot(), Fence: l.Fence(), HeldFor: endedAt.Sub(l.acquiredAt), Err: err}
	s.events.Put(name, func() { hook(e) })
}
