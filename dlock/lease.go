package dlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A Lease is a slot or a mutex held by this process. Its Session renews it until it is released or
// lost, or until StopRenewing is called. Its methods are safe for concurrent use.
type Lease struct {
	session    *Session
	grant      driver.Grant
	acquiredAt time.Time
	values     context.Context // context of the call to TryAcquire, used only for its values
	watched    atomic.Bool     // a caller waits for the lease to end

	// session.mu guards the fields below.
	counted    bool       // included in session.watched
	expiryNode listNode   // links in session.expiryQueue, while the lease is held
	renewNode  listNode   // links in heartbeat.renewQueue, while the lease is also renewed
	heartbeat  *heartbeat // heartbeat of the shard that last had the name
	due        time.Time  // when to renew the lease

	mu        sync.Mutex // locked after session.mu if both are needed
	state     leaseState
	cause     error                   // why the lease ended; nil while it is held
	ctx       context.Context         // nil until a caller asks for it
	cancel    context.CancelCauseFunc // cancels ctx
	failure   error                   // error of the last heartbeat; nil if it was answered
	info      driver.Info
	succeeded bool // see MarkSucceeded

	// sent is when the session sent the last request that the store granted or extended. The trust
	// window starts here. Writers hold both locks.
	sent instant

	release    sync.Once
	releaseErr error
}

type leaseState uint8

const (
	leaseHeld leaseState = iota
	leaseLost
	leaseReleased
)

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.grant.Name }

// Slot returns the number of the slot. It is 0 for a mutex.
func (l *Lease) Slot() int { return l.grant.Slot }

// Fence returns the number that guards a resource, or 0 if the store gives no fences.
func (l *Lease) Fence() Fence { return l.grant.Fence }

// Shared returns the grants of the lease's further semaphores, in the order in which
// [Semaphore.With] got them. It leaves out their tokens, because anyone who has a token can release
// its grant.
func (l *Lease) Shared() []driver.Grant {
	list := slices.Clone(l.grant.Shared)
	for i := range list {
		list[i].Token = ""
	}
	return list
}

// AcquiredAt returns when the lease was acquired, on the local clock.
func (l *Lease) AcquiredAt() time.Time { return l.acquiredAt }

// watch makes the session check for sleep of the machine, because sleep makes timers late and a
// caller now waits for this lease to end. Valid needs no such check, because it reads the clocks.
func (l *Lease) watch() {
	if !l.watched.Swap(true) {
		l.session.watch(l)
	}
}

// Context returns a context that ends when the lease is lost (its cause then matches ErrLost) or
// released (ErrReleased). It has the values of the context that the lease was acquired with, but
// does not end with that context.
func (l *Lease) Context() context.Context {
	l.watch()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.values))
		if l.state != leaseHeld {
			l.cancel(l.cause)
		}
	}
	return l.ctx
}

// Done returns a channel that is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held, and then a *LostError or ErrReleased.
func (l *Lease) Err() error {
	l.watch()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Valid reports whether the lease is held and its trust window is open at this instant. It reads
// clocks, does not call the store, and takes about a microsecond. Call it before each step that
// must not happen twice.
func (l *Lease) Valid() bool {
	t := now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != leaseHeld {
		return false
	}
	_, total := t.since(l.sent)
	return total < l.session.trust
}

// StopRenewing lets the lease expire. It expires at most one TTL after its last renewal and stays
// valid until its trust window closes.
func (l *Lease) StopRenewing() {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	l.heartbeat.renewQueue.remove(l)
}

// Release gives the lease back. Call it only after the work has ended: another holder may start as
// soon as the request is sent.
//
// Release uses only the values of ctx, does not end with it, and returns within the session's
// StoreTimeout. It returns nil on success. If the lease had already ended, and another holder may
// have had it since, the error matches ErrLost. A *StoreError means that the release failed, and
// that the session keeps trying in the background. A second call does nothing and returns the same
// result.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() {
		began := time.Now()
		ended := l.end(leaseReleased, ErrReleased)
		if ended {
			l.cancelContext()
			l.session.remove(l)
		}
		grants := l.appendGrants(make([]driver.Grant, 0, l.grants()))
		l.mu.Lock()
		grants[0].Succeeded = l.succeeded
		l.mu.Unlock()
		l.releaseErr = l.session.releaseNow(ctx, grants)
		if ended {
			l.session.leaseEnded("Released", l.session.hooks.Released, l, began, l.releaseErr)
		}
	})
	return l.releaseErr
}

func newLease(ctx context.Context, s *Session, g driver.Grant, sent, t instant) *Lease {
	due := sent.mono.Add(s.ttl / 3)
	return &Lease{session: s, grant: g, acquiredAt: t.mono, values: ctx, sent: sent, due: due, info: g.Info}
}

// expireIfDue ends the lease if its trust window has closed by t. Otherwise it returns how long the
// window stays open.
//
// doubt means that this platform cannot tell a suspended machine from a stepped wall clock. Valid
// is then false, but the lease is not lost until the next heartbeat settles it.
func (l *Lease) expireIfDue(t instant) (left time.Duration, doubt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	trust := l.session.trust
	awake, total := t.since(l.sent)
	if total < trust {
		return trust - total, false
	}
	if !suspendIsExact() && awake < trust {
		return trust - awake, true
	}
	if l.state == leaseHeld {
		// If the window closes on time after failed heartbeats, the store is silent. If the session
		// notices too late, this process was paused, and another holder may be working.
		late := total-trust > margin(l.session.ttl)
		l.state = leaseLost
		l.cause = &LostError{Name: l.grant.Name, Slot: l.grant.Slot, Silent: l.failure != nil && !late, Err: l.failure}
		l.session.leaseEnded("Lost", l.session.hooks.Lost, l, t.mono, l.cause)
	}
	return 0, false
}

// renewed restarts the trust window at sent, unless the window had closed by t, the arrival of the
// reply. If it had closed, this process was paused and another holder may have had the slot. A
// delayed copy of our acquire may even have retaken it for us. A pause after t does no harm. The
// window was open when the store answered, so no other holder had the slot, and the renewed lease
// counts from sent.
func (l *Lease) renewed(t, sent instant, info driver.Info) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info = info
	trust := l.session.trust
	awake, total := t.since(l.sent)
	closed := total >= trust && (suspendIsExact() || awake >= trust) // otherwise the wall clock may have stepped
	if l.state != leaseHeld || closed {
		return false
	}
	l.failure = nil
	l.sent = sent
	return true
}

// unanswered records why the last heartbeat failed. Another heartbeat may still succeed before the
// trust window closes.
func (l *Lease) unanswered(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// end moves a held lease to its final state. It reports whether the lease was still held. The
// caller must then call cancelContext.
func (l *Lease) end(state leaseState, cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != leaseHeld {
		return false
	}
	l.state, l.cause = state, cause
	if state == leaseLost {
		l.session.leaseEnded("Lost", l.session.hooks.Lost, l, time.Now(), cause)
	}
	return true
}

// cancelContext cancels the context of a lease that has ended, if a caller asked for one. Call it
// without locks, because it may wake many goroutines.
func (l *Lease) cancelContext() {
	l.mu.Lock()
	cancel := l.cancel
	l.mu.Unlock()
	if cancel != nil {
		cancel(l.cause)
	}
}

// grants returns how many grants the lease has.
func (l *Lease) grants() int { return 1 + len(l.grant.Shared) }

// appendGrants appends the grants of the lease in the form that Extend and Release take.
func (l *Lease) appendGrants(list []driver.Grant) []driver.Grant {
	own := l.grant
	own.Shared = nil
	return append(append(list, own), l.grant.Shared...)
}

// result combines the first results, one for each grant of this lease. The lease is lost if any
// grant is lost, and renewed if all are renewed. at is the grant that decided.
func (l *Lease) result(results []driver.Result) (r driver.Result, at driver.Grant) {
	r, at = results[0], l.grant
	info := r.Info
	for i, g := range l.grant.Shared {
		other := results[1+i]
		if other.Outcome == driver.GrantLost && r.Outcome != driver.GrantLost ||
			other.Outcome == driver.GrantUnknown && r.Outcome == driver.GrantOK {
			r, at = other, g
		}
	}
	r.Info = info
	return r, at
}
