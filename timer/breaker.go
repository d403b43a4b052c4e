package timer

import (
	"time"
)

const (
	// trips failures in a row open the breaker; one may be a hiccup.
	trips = 3
	// mends answers in a row close it again.
	mends = 3
	// quiet is how long nothing is logged of an outage after the last one was: a store of which a part is down fails now and
	// then. It is also how long a store must be well before the pauses between probes begin at their shortest again.
	quiet = time.Minute
)

// A breaker keeps ticks from asking a store that does not answer: they would all wait for it, and a thousand timers would stand
// still. Only errors and time-outs open it, never a "no". While it is open the ticks do at once what their OnStoreDown says,
// and the store is asked by one probe of this host at a time. It has no lock of its own: Scheduler.mu.
type breaker struct {
	called   bool
	err      error // of the last call; nil: it was answered
	open     bool
	failures int       // in a row
	answers  int       // in a row
	since    time.Time // when err last came or went
	told     time.Time // when an outage was last logged
	telling  bool      // this one was
}

// A change is what one call did to the breaker.
type change struct {
	answered bool // for the first time, or again
	opened   bool
	closed   bool
	tell     bool          // opened or closed, and it is worth a line in the log
	lasted   time.Duration // how long it was open
}

// saw takes in how a call went.
func (b *breaker) saw(err error) (c change) {
	now := time.Now()
	c.answered = err == nil && (!b.called || b.err != nil)
	down := now.Sub(b.since)
	changed := !b.called || (err == nil) != (b.err == nil)
	if changed && !b.open { // an outage began with its first failure
		b.since = now
	}
	b.called, b.err = true, err
	if err != nil {
		b.failures++
		b.answers = 0
	} else {
		b.answers++
		b.failures = 0
	}
	switch {
	case !b.open && b.failures >= trips:
		b.open, c.opened = true, true
		b.telling = b.told.IsZero() || now.Sub(b.told) >= quiet
		if b.telling {
			b.told = now
		}
		c.tell = b.telling
	case b.open && b.answers >= mends:
		b.open, c.closed, c.lasted, c.tell = false, true, down, b.telling
		b.telling = false
		b.since = now
	}
	return c
}

// well reports whether the last call was answered and ticks may ask.
func (b *breaker) well() bool { return b.called && b.err == nil && !b.open }

func (b *breaker) status(label string) StoreStatus {
	status := StoreStatus{Name: label, Up: b.well(), Open: b.open, Since: b.since}
	if b.err != nil {
		status.Err = b.err.Error()
	}
	return status
}
