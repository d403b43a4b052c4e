package timer

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

const (
	// trips failures in a row open the breaker; one may be a hiccup.
	trips = 3
	// mends answers in a row close it again.
	mends = 3
	// quiet is how long nothing is logged of an outage after the last one was: a store of which a
	// part is down fails now and then. It is also how long a store must be well before the pauses
	// between probes begin at their shortest again.
	quiet = time.Minute
)

// A breaker keeps ticks from asking a store that does not answer: they would all wait for it, and a
// thousand timers would stand still. Only errors and time-outs open it, never a "no". While it is
// open the ticks do at once what their OnStoreDown says, and the store is asked by one probe of
// this host at a time. It has no mutex of its own: that of the
// storeWatch guards it.
//
// A store that says that it is not set up right (dlock.ErrSetup) opens it, too, and no tick runs
// then. It is taken at its word until it grants or refuses again: one that is asked for a password
// that is wrong may well be silent at times.
type breaker struct {
	called   bool
	err      error // of the last call; nil: it was answered
	setup    error // what the store said of how it is set up; nil: nothing, or it has granted or refused since
	open     bool
	failures int       // in a row
	refuses  bool      // an acquire has failed, and none was answered since
	answers  int       // in a row
	since    time.Time // when err last came or went
	loggedAt time.Time // when an outage was last logged
	logging  bool      // this one was

	heard time.Time // when the last call was over

	setupLoggedAt time.Time // when it was last logged that the store is not set up right
}

// A change is what one call did to the breaker.
type change struct {
	answered bool // for the first time, or again
	opened   bool
	closed   bool
	setup    bool          // it has said that it is not set up right, and had not before
	mended   bool          // it did not open, but runs started without the store
	log      bool          // one of these, and it is worth a line in the log
	lasted   time.Duration // how long it was open
}

// saw takes in how a call went. A renewal that is answered tells nothing of whether the store
// grants: it makes up for renewals that failed, not for acquires.
func (b *breaker) saw(err error, renewal bool) (c change) {
	if err == nil && renewal && (b.open || b.refuses || b.setup != nil) {
		return c
	}
	if !renewal {
		b.refuses = err != nil
	}
	now := time.Now()
	c.answered = err == nil && (!b.called || b.err != nil)
	down := now.Sub(b.since)
	changed := !b.called || (err == nil) != (b.err == nil)
	if changed && !b.open { // an outage began with its first failure
		b.since = now
	}
	b.called, b.err, b.heard = true, err, now
	if matches(err, dlock.ErrSetup) {
		c.setup, b.setup = b.setup == nil, err
	}
	if err != nil {
		b.failures++
		b.answers = 0
	} else {
		b.answers++
		b.failures = 0
	}
	if !b.open && b.failures >= trips {
		b.open, c.opened = true, true
	}
	switch {
	case c.setup:
		c.log = b.mayLog(&b.setupLoggedAt, now)
	case c.opened:
		c.log = !b.logging && b.mayLog(&b.loggedAt, now)
	case b.open && b.answers >= mends:
		b.open, c.closed, c.lasted, c.log = false, true, down, b.logging
		b.logging = false
		b.since = now
	}
	if err == nil && !b.open {
		b.setup, b.logging = nil, false
	}
	return c
}

// mayLog reports whether an outage is worth a line in the log, and notes when there was one.
func (b *breaker) mayLog(loggedAt *time.Time, now time.Time) bool {
	if !loggedAt.IsZero() && now.Sub(*loggedAt) < quiet {
		return false
	}
	*loggedAt, b.logging = now, true
	return true
}

// why is what is wrong with the store; nil: nothing is known.
func (b *breaker) why() error {
	if b.setup != nil {
		return b.setup
	}
	return b.err
}

// well reports whether the last call was answered and ticks may ask.
func (b *breaker) well() bool { return b.called && b.err == nil && !b.open }

func (b *breaker) status(label string) StoreStatus {
	status := StoreStatus{Name: label, Up: b.well(), BreakerOpen: b.open, Setup: b.setup != nil, Since: b.since}
	if why := b.why(); why != nil {
		status.Err = fmt.Sprint(why) // which survives an error that panics
	}
	return status
}
