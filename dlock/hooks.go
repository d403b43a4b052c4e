package dlock

import (
	"context"
	"errors"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Hooks report the events of a Session for metrics, logs and traces. Any hook may be nil. A panic
// in a hook is ignored.
//
// Called reports calls to the store. The other hooks report leases. They run one at a time, in the
// order of the events, on a goroutine that exists only while there is something to report. So they
// may be slow and may call the Session. Up to 10,000 events wait while a hook is busy. Further
// events are dropped and counted by Session.DroppedEvents. Session.Close waits up to StoreTimeout
// for the remaining events; later events are not reported. The end of each acquired lease is
// reported once, by Lost or by Released.
type Hooks struct {
	// Called is called after each call to the store, before the Session acts on the answer. It runs
	// without locks on the goroutine that called the store, so calls may be concurrent. It must not
	// block, because a lease may be waiting for its renewal, and it must not call the Session.
	Called func(StoreCall)

	// Acquired is called when a lease is acquired. Only Called reports refusals.
	Acquired func(LeaseAcquired)

	// Lost is called when a lease ends before its release.
	Lost func(LeaseEnded)

	// Released is called when Lease.Release returns, unless the lease was lost before.
	Released func(LeaseEnded)
}

// LeaseAcquired describes a lease that was acquired.
type LeaseAcquired struct {
	Name  string
	Slot  int
	Fence Fence
	Wait  time.Duration // time from the call of Acquire or TryAcquire to the grant
	// PreviousExpired is Lease.PreviousExpired.
	PreviousExpired bool
}

// LeaseEnded describes a lease that was lost or released.
type LeaseEnded struct {
	Name    string
	Slot    int
	Fence   Fence
	HeldFor time.Duration // time until the loss or the call of Release
	Err     error         // for a lost lease, a *LostError; for a released one, the result of Release
}

// A StoreCall describes a finished call to the store.
type StoreCall struct {
	Op      StoreOp
	Name    string          // name of the lock; with several locks, of the first, because all are on one shard
	Grants  []driver.Grant  // grants to extend or release, several if a Lease has several; do not keep or change them
	Results []driver.Result // one per grant if Err is nil; do not keep or change them
	// Context carries the values of the caller's context, such as a trace span. In a heartbeat it
	// has none. The call is over, so ignore whether Context has ended.
	Context   context.Context
	StartedAt time.Time     // on the local clock
	Took      time.Duration // how long the call took
	// Err is nil, or a *NotAcquiredError if the store refused, or any other error. A refusal is an
	// answer, not a failure. A panic of the store and an invalid answer count as errors.
	Err error
	// Canceled reports that the caller gave up before the store answered. Err then says nothing
	// about the store.
	Canceled bool
}

// Refused reports whether the store answered with a refusal. A nil *NotAcquiredError is not a
// refusal.
func (s StoreCall) Refused() bool {
	no, ok := errors.AsType[*NotAcquiredError](s.Err)
	return errors.Is(s.Err, ErrNotAcquired) && (!ok || no != nil)
}

// DroppedEvents returns how many lease events were dropped because hooks were too slow.
func (s *Session) DroppedEvents() uint64 { return s.events.Dropped() }

// acquired reports a new lease to the hooks. The caller holds mu, and the lease cannot have ended
// yet.
func (s *Session) acquired(l *Lease, began time.Time) {
	hook := s.hooks.Acquired
	if hook == nil {
		return
	}
	e := LeaseAcquired{Name: l.Name(), Slot: l.Slot(), Fence: l.Fence(), Wait: l.acquiredAt.Sub(began),
		PreviousExpired: l.PreviousExpired()}
	s.events.Put("Acquired", func() { hook(e) })
}

// leaseEnded queues the end of a lease for a hook. It runs no user code, so the caller may hold a
// mutex.
func (s *Session) leaseEnded(name string, hook func(LeaseEnded), l *Lease, endedAt time.Time, err error) {
	if hook == nil {
		return
	}
	e := LeaseEnded{Name: l.Name(), Slot: l.Slot(), Fence: l.Fence(), HeldFor: endedAt.Sub(l.acquiredAt), Err: err}
	s.events.Put(name, func() { hook(e) })
}
