package dlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is a slot or a mutex held by this process. Its Session renews it until it is released,
// lost, or StopRenewing is called. Its methods may be called from any goroutine.
type Lease struct {
	session *Session
	grant   Grant
	since   time.Time
	values  context.Context // that it was acquired with
	watched atomic.Bool     // somebody waits for its end

	// Guarded by session.mu.
	counted bool      // in session.watched
	window  place     // in session.windows, while it is held
	turn    place     // in heart.turns, while it is also renewed
	heart   *heart    // of the shard that it was last seen on
	due     time.Time // its turn

	mu      sync.Mutex // taken after session.mu, if both are
	state   leaseState
	cause   error                   // of its end; nil while it is held
	ctx     context.Context         // nil until somebody asks for it
	cancel  context.CancelCauseFunc // of ctx
	sent    instant                 // the moment before the last request that the store answered "ok" was sent; written with both locks held
	failure error                   // what the last heartbeat came back with, nil since the last renewal
	info    Info
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

// watch has the session look for sleep of the machine: somebody waits for this lease to end. Valid
// looks for itself.
func (l *Lease) watch() {
	if !l.watched.Swap(true) {
		l.session.watch(l)
	}
}

// Context ends when the lease is lost (the cause matches ErrLost) or released (ErrReleased). It has
// the values, but not the end, of the context that the lease was acquired with.
func (l *Lease) Context() context.Context {
	l.watch()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.values))
		if l.state != held {
			l.cancel(l.cause)
		}
	}
	return l.ctx
}

// Done is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while the lease is held; then a *LostError or ErrReleased.
func (l *Lease) Err() error {
	l.watch()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Info is what the store last told about the name.
func (l *Lease) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// Valid reports whether the lease is held and its trust window open at this instant. It asks the
// clocks, not the store, and costs about a microsecond, so ask it before each step that must not be
// done twice.
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

// StopRenewing lets the lease end by itself, at most one TTL after its last renewal. It stays valid
// until then.
func (l *Lease) StopRenewing() {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	l.heart.turns.leave(l)
}

// MarkSucceeded says that the work ended well. The store learns it with Release, and tells
// everybody who asks for the name (Info.SinceSuccess). It does not end the lease.
func (l *Lease) MarkSucceeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.well = true
}

// PreviousExpired reports whether whoever had the slot before let its lease end without releasing
// it, for instance because it was killed. False also if the store cannot tell.
func (l *Lease) PreviousExpired() bool { return l.grant.PreviousExpired }

// Release gives the lease back. It does not end with ctx, of which it takes only the values; it
// takes at most the session's StoreTimeout. It returns nil, an error matching ErrLost if the lease
// had already ended (somebody else may have had it since), or a *StoreError, in which case the
// session goes on trying in the background. A second Release does nothing and returns the same.
//
// Call it only after the work has ended: another holder may start the moment it is sent.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() {
		if l.end(released, ErrReleased) {
			l.tell()
			l.session.remove(l)
		}
		grant := l.grant
		l.mu.Lock()
		grant.Succeeded = l.well
		l.mu.Unlock()
		l.releaseErr = l.session.releaseNow(ctx, grant)
	})
	return l.releaseErr
}

func newLease(ctx context.Context, s *Session, g Grant, sent, t instant) *Lease {
	return &Lease{session: s, grant: g, since: t.mono, values: ctx, sent: sent, due: sent.mono.Add(s.ttl / 3), info: g.Info}
}

// check ends the lease if its trust window has closed by t, and otherwise tells how long it has
// left. In doubt it cannot be told sleep from a step of the wall clock: Valid is false, and only
// the store knows.
func (l *Lease) check(t instant) (left time.Duration, doubt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	trust := l.session.trust
	awake, total := t.since(l.sent)
	if total < trust {
		return trust - total, false
	}
	if !suspendIsExact && awake < trust {
		return trust - awake, true
	}
	if l.state == held {
		// A window that closes on time after heartbeats that failed means a silent store. One that
		// is found closed too late means that this process stood still, and another holder may be
		// at work.
		late := total-trust > margin(l.session.ttl)
		l.state = lost
		l.cause = &LostError{Name: l.grant.Name, Slot: l.grant.Slot, Silent: l.failure != nil && !late, Err: l.failure}
	}
	return 0, false
}

// renewed moves the trust window on, unless it had closed by t, after the reply: this process may
// have stood still, somebody else may have had the slot, and a late copy of our acquire may have
// taken it for us once more. Whoever stands still after t does no harm: the window was open when
// the store had answered, so the lease was never anybody else's, and what the store promised counts
// from sent.
func (l *Lease) renewed(t, sent instant, info Info) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info = info
	trust := l.session.trust
	awake, total := t.since(l.sent)
	if l.state != held || total >= trust && (suspendIsExact || awake >= trust) { // else it may have been a step of the wall clock
		return false
	}
	l.failure = nil
	l.sent = sent
	return true
}

// unanswered remembers that the store did not answer; the heartbeat asks again until the window
// closes.
func (l *Lease) unanswered(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// end moves a held lease to its final state and reports whether it did. Then tell whoever waits for
// it.
func (l *Lease) end(state leaseState, cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != held {
		return false
	}
	l.state, l.cause = state, cause
	return true
}

// tell cancels the context of a lease that has ended, if anybody asked for it. It is called without
// locks: it may wake many.
func (l *Lease) tell() {
	l.mu.Lock()
	cancel := l.cancel
	l.mu.Unlock()
	if cancel != nil {
		cancel(l.cause)
	}
}
