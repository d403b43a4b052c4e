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
	// An open breaker closes after closeAfter consecutive answers.
	closeAfter = 3
	// logInterval is the minimum time between two outages that are logged, because a store with one
	// bad replica fails now and then. The pauses between probes become short again only after the
	// store has answered for this long.
	logInterval = time.Minute
)

// A breaker prevents ticks from calling a store that does not answer. Otherwise each tick would
// wait for StoreTimeout, and a thousand timers would stall. Only errors and timeouts open it, never
// a refusal. While it is open, ticks follow OnStoreDown immediately, and this host calls the store
// with one probe at a time. A breaker has no mutex: the storeWatch's mutex guards it.
//
// A store that is not set up correctly (dlock.ErrSetup) also opens the breaker. In that case no
// tick runs until the store grants or refuses a lease again. Timeouts in between do not end this
// state, because a server that rejects a password may also time out.
type breaker struct {
	answers.Breaker
	called    bool
	err       error     // the error of the last call; nil if the store answered
	setupErr  error     // the setup error; nil if there is none, or the store has granted or refused since
	refuses   bool      // whether the last acquire failed
	changedAt time.Time // when the result of well last changed
	loggedAt  time.Time // when an outage was last logged
	logging   bool      // whether this outage was logged

	heardAt time.Time // when the last call ended

	setupLoggedAt time.Time // when a setup error was last logged
}

// A result is the outcome of one call to the store. Store.Shard and the methods of the store's
// errors are foreign code that may block or panic, so they are called before mu is locked.
type result struct {
	shard    string // the server that was called; "" if the store has only one
	alone    bool   // no known name is on another server
	failure  error  // nil if the store answered
	notSetUp bool   // the failure says that the store is not set up correctly
	renewal  bool
}

func (s *storeWatch) resultOf(name string, failure error, renewal bool) result {
	r := result{shard: s.names.of(name), failure: failure, renewal: renewal,
		notSetUp: guard.Is(failure, dlock.ErrSetup)}
	r.alone = failure != nil && r.shard != "" && s.names.elsewhere(r.shard, 0) == ""
	return r
}

// A change describes how one call changed the breaker.
type change struct {
	answered  bool // the store answers for the first time, or again
	opened    bool
	closed    bool
	notSetUp  bool          // the store reports for the first time that it is not set up correctly
	recovered bool          // runs started without the store, but the breaker did not open
	log       bool          // whether to log the change
	lasted    time.Duration // how long the breaker was open
}

// saw records the result of a call. notSetUp means that err reports a store that is not set up
// correctly. A successful renewal does not prove that the store grants leases: it offsets failed
// renewals, but not failed acquires.
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
	if changed && !b.Open() { // the first failure starts the outage
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
// an outage was logged less than logInterval ago.
func (b *breaker) startLogging(loggedAt *time.Time, now time.Time) bool {
	if !loggedAt.IsZero() && now.Sub(*loggedAt) < logInterval {
		return false
	}
	*loggedAt, b.logging = now, true
	return true
}

// why returns the current problem of the store, or nil if none is known.
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

// status formats the state of the store. It calls a method of the store's error, so call it on a
// copy and without holding a mutex.
func (b *breaker) status(label string) StoreStatus {
	status := StoreStatus{Name: label, Up: b.well(), BreakerOpen: b.Open(), NotSetUp: b.setupErr != nil,
		ChangedAt: b.changedAt}
	if why := b.why(); why != nil {
		status.Err = mask.Text(fmt.Sprint(why)) // fmt recovers if the error panics
	}
	return status
}
