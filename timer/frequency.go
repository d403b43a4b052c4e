package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// remembered is how long a "full" of the store is remembered at most, and for timers of which period: asking every time would cost
// the store more than it tells.
const (
	remembered    = time.Second
	highFrequency = 10 * time.Second
)

// remember keeps a "full" in mind, if a slot has been held for longer than an interval: such a run will hardly have ended at the next tick, a short one
// will. A slot may become free earlier all the same, so a tick may be skipped that would have got one; only a no is ever remembered. Called with mu held.
func (s *Scheduler) remember(e *entry, no *dlock.NotAcquiredError) {
	if interval := e.interval(); no.Reason == dlock.Full && interval < highFrequency && no.Since >= interval {
		e.more().fullUntil = time.Now().Add(min(no.Ends, remembered))
	}
}

// stillFull reports whether the store has just said that every slot is held. Called with mu held.
func (s *Scheduler) stillFull(e *entry) bool {
	d := e.detail
	return !d.fullUntil.IsZero() && time.Now().Before(d.fullUntil)
}
