package dlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is a slot or a mutex held by this process. Its Session renews it until it is released, lost,
// or StopRenewing is called. Its methods may be called from any goroutine.
type Lease struct {
	session *Session
	grant   Grant
	since   time.Time
	ctx     context.Context
	cancel  context.CancelCauseFunc
	watched atomic.Bool // somebody waits for its end
	counted bool        // in session.watched; guarded by session.mu

	mu      sync.Mutex
	state   leaseState
	sent    instant     // the moment before the last request that the store answered "ok" was sent
	closer  *time.Timer // ends the trust window; waits on no I/O
	renew   bool        // the heartbeat renews it
	failure error       // what the last heartbeat came back with, nil since the last renewal
	news    News
	well    bool // the work ended well

	release    sync.Once
	releaseErr error
}

type leaseState uint8

const (
	held leaseState = iota
	lost
	released
)

// Name is the name of the lock.
func (l *Lease) Name() string { return l.grant.Name }

// Slot is the number of the slot, 0 for a mutex.
func (l *Lease) Slot() int { return l.grant.Slot }

// Fence is the number to guard a resource with; 0 if the store gives none.
func (l *Lease) Fence() Fence { return l.grant.Fence }

// Since is when the lease was acquired, on the local clock.
func (l *Lease) Since() time.Time { return l.since }

// watch has the session look for sleep of the machine: somebody waits for this lease to end. Valid looks for itself.
func (l *Lease) watch() {
	if !l.watched.Swap(true) {
		l.session.watch(l)
	}
}

// Context ends when the lease is lost (the cause matches ErrLost) or released (ErrReleased). It has the values,
// but not the end, of the context that the lease was acquired with.
func (l *Lease) Context() context.Context {
	l.watch()
	return l.ctx
}

// Done is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while the lease is held; then a *LostError or ErrReleased.
func (l *Lease) Err() error { return context.Cause(l.Context()) }

// News is what the store last told about the name.
func (l *Lease) News() News {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news
}

// Valid reports whether the lease is held and its trust window open at this instant. It asks the clocks, not
// the store, and costs about a microsecond, so ask it before each step that must not be done twice.
func (l *Lease) Valid() bool {
	t := now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != held {
		return false
	}
	_, total := t.since(l.sent)
	return total < l.session.trust
}

// StopRenewing lets the lease end by itself, at most one TTL after its last renewal. It stays valid until then.
func (l *Lease) StopRenewing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew = false
}

// Succeeded says that the work ended well. The store learns it with Release, and tells everybody who asks for the name
// (News.Success). It does not end the lease.
func (l *Lease) Succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.well = true
}

// Abandoned reports whether whoever had the slot before let its lease end without releasing it, for instance because it was
// killed. False also if the store cannot tell.
func (l *Lease) Abandoned() bool { return l.grant.Abandoned }

// Release gives the lease back. It does not end with ctx, of which it takes only the values; it
// takes at most the session's StoreTimeout. It returns nil, an error matching ErrLost if the lease had
// already ended (somebody else may have had it since), or a *StoreError, in which case the session goes on
// trying in the background. A second Release does nothing and returns the same.
//
// Call it only after the work has ended: another holder may start the moment it is sent.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() {
		l.end(released, ErrReleased)
		l.session.remove(l)
		grant := l.grant
		l.mu.Lock()
		grant.Succeeded = l.well
		l.mu.Unlock()
		l.releaseErr = l.session.releaseNow(ctx, grant)
	})
	return l.releaseErr
}

// open starts the trust window of a new grant. It reports false if the window has closed already.
func (l *Lease) open(sent instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = sent
	_, total := now().since(sent)
	if total >= l.session.trust {
		return false
	}
	l.closer = time.AfterFunc(l.session.trust-total, l.check)
	return true
}

// check loses the lease if its trust window has closed, and otherwise comes back when it will.
// It runs on a timer of its own, and whenever the machine may have been asleep.
func (l *Lease) check() {
	t := now()
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return
	}
	awake, total := t.since(l.sent)
	left := l.session.trust - total
	if left <= 0 && !suspendIsExact && awake < l.session.trust {
		// Either sleep or a step of the wall clock: Valid is false; the heartbeat finds out which.
		left = l.session.trust - awake
		l.session.beatSoon(0)
	}
	if left > 0 {
		l.closer.Reset(left)
		l.mu.Unlock()
		return
	}
	// A window that closes on time after heartbeats that failed means a silent store. One that is found closed
	// too late means that this process stood still, and another holder may be at work.
	late := total-l.session.trust > margin(l.session.ttl)
	err := &LostError{Name: l.grant.Name, Slot: l.grant.Slot, Silent: l.failure != nil && !late, Err: l.failure}
	l.mu.Unlock()
	l.lose(err)
}

// renewed moves the trust window on, unless it has closed: this process may have stood still, somebody else may have had the slot, and a late
// copy of our acquire may have taken it for us once more.
func (l *Lease) renewed(sent instant, news News) {
	t := now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news = news
	if l.state != held {
		return
	}
	awake, total := t.since(l.sent)
	if total >= l.session.trust && (suspendIsExact || awake >= l.session.trust) { // else it may have been a step of the wall clock
		l.closer.Reset(0)
		return
	}
	l.failure = nil
	l.sent = sent
	// The timer is not moved: when it goes off, check sees that there is time left.
}

// unanswered remembers that the store did not answer; the heartbeat asks again until the window closes.
func (l *Lease) unanswered(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renew { // one that is meant to end does not end by the store's silence
		l.failure = err
	}
}

// lose ends the lease for good.
func (l *Lease) lose(err *LostError) {
	if l.end(lost, err) {
		l.session.remove(l)
	}
}

// end moves a held lease to its final state and reports whether it did.
func (l *Lease) end(state leaseState, cause error) bool {
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return false
	}
	l.state = state
	if l.closer != nil {
		l.closer.Stop()
	}
	l.mu.Unlock()
	l.cancel(cause)
	return true
}
