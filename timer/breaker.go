package timer

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
)

const (
	// An open breaker closes after closeAfter answers in a row.
	closeAfter = 3
	// logInterval is the time between two outages that are logged: a store with one bad replica
	// fails now and then. It is also how long the store must answer before the pauses between
	// probes start at their shortest again.
	logInterval = time.Minute
)

// A breaker keeps ticks from calling a store that does not answer: otherwise each would wait for
// StoreTimeout, and a thousand timers would stall. Only errors and time-outs open it, never a
// refusal. While it is open, ticks follow OnStoreDown immediately, and one probe of this host at a
// time calls the store. It has no mutex of its own: the storeWatch's mutex guards it.
//
// A store that is not set up correctly (dlock.ErrSetup) opens it, too, and then no tick runs. This
// lasts until the store grants or refuses again: a server that rejects a password may also fail to
// answer at times.
type breaker struct {
	answers.Breaker
	called    bool
	err       error     // of the last call; nil: it was answered
	setupErr  error     // the fault of the store's set-up; nil: none, or the store has granted or refused since
	refuses   bool      // the last acquire failed
	changedAt time.Time // when the result of well last changed
	loggedAt  time.Time // when an outage was last logged
	logging   bool      // this outage was logged

	heardAt time.Time // when the last call ended

	setupLoggedAt time.Time // when a set-up fault was last logged
}

// A result is what one call shows about the store. The store's Shard and the methods of its errors
// are foreign code, which may block or panic, so they are called before mu is locked.
type result struct {
	shard    string // the server that was called; "": the store is one server
	alone    bool   // no known name is on another server
	failure  error  // nil: it was answered
	notSetUp bool   // the failure says that the store is not set up correctly
	renewal  bool
}

func (s *storeWatch) resultOf(name string, failure error, renewal bool) result {
	r := result{shard: s.names.of(name), failure: failure, renewal: renewal,
		notSetUp: guard.Is(failure, dlock.ErrSetup)}
	r.alone = failure != nil && r.shard != "" && s.names.elsewhere(r.shard, 0) == ""
	return r
}

// A change is the effect of one call on the breaker.
type change struct {
	answered  bool // the store answers for the first time, or again
	opened    bool
	closed    bool
	notSetUp  bool          // the store reports for the first time that it is not set up correctly
	recovered bool          // the breaker did not open, but runs started without the store
	log       bool          // one of these is to be logged
	lasted    time.Duration // how long it was open
}

// saw records the result of a call. notSetUp: err says that the store is not set up correctly. A
// renewal that is answered does not show that the store grants: it makes up for failed renewals,
// but not for failed acquires.
func (b *breaker) saw(err error, notSetUp, renewal bool) (c change) {
	if err == nil && renewal && (b.Open() || b.refuses || b.setupErr != nil) {
		return c
	}
	if !renewal {
		b.refuses = err != nil
	}
	now := time.Now()
	c.answered = err == nil && (!b.called || b.err != nil)
	down := now.Sub(b.changedAt)
	changed := !b.called || (err == nil) != (b.err == nil)
	if changed && !b.Open() { // the first failure began the outage
		b.changedAt = now
	}
	b.called, b.err, b.heardAt = true, err, now
	if notSetUp {
		c.notSetUp, b.setupErr = b.setupErr == nil, err
	}
	c.opened, c.closed = b.Count(err == nil, closeAfter)
	switch {
	case c.notSetUp:
		c.log = b.startLogging(&b.setupLoggedAt, now)
	case c.opened:
		c.log = !b.logging && b.startLogging(&b.loggedAt, now)
	case c.closed:
		c.lasted, c.log = down, b.logging
		b.changedAt = now
	}
	if err == nil && !b.Open() {
		b.setupErr, b.logging = nil, false
	}
	return c
}

// startLogging reports whether to log an outage, and records that it is logged. It returns false if
// one was logged a moment ago.
func (b *breaker) startLogging(loggedAt *time.Time, now time.Time) bool {
	if !loggedAt.IsZero() && now.Sub(*loggedAt) < logInterval {
		return false
	}
	*loggedAt, b.logging = now, true
	return true
}

// why returns what is wrong with the store; nil: nothing is known.
func (b *breaker) why() error {
	if b.setupErr != nil {
		return b.setupErr
	}
	return b.err
}

// reason returns the reason why ticks are skipped while the breaker is open.
func (b *breaker) reason() Reason {
	if b.setupErr != nil {
		return ReasonStoreSetup
	}
	return ReasonStoreDown
}

// well reports whether the last call was answered and the breaker is closed.
func (b *breaker) well() bool { return b.called && b.err == nil && !b.Open() }

// status calls a method of the store's error, so call it on a copy, without a mutex.
func (b *breaker) status(label string) StoreStatus {
	status := StoreStatus{Name: label, Up: b.well(), BreakerOpen: b.Open(), NotSetUp: b.setupErr != nil,
		ChangedAt: b.changedAt}
	if why := b.why(); why != nil {
		status.Err = mask.Text(fmt.Sprint(why)) // fmt survives an error that panics
	}
	return status
}
