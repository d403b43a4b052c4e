package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// remembered is how long a "full" of the store is remembered at most, and for timers of which
// period: asking every time would cost the store more than it tells.
const (
	remembered    = time.Second
	highFrequency = 10 * time.Second
)

// A fullAnswer is what the store said when every slot was held, and until when that counts; the
// zero value: it has not said so lately.
type fullAnswer struct {
	no    *dlock.NotAcquiredError
	until time.Time
	limit int // MaxConcurrency that was in force: the answer says nothing about another one
}

// remember keeps a "full" in mind, if a slot has been held for longer than an interval: such a run
// will hardly have ended at the next tick, a short one will. A slot may become free earlier all the
// same, so a tick may be skipped that would have got one; only a no is ever remembered. Called with
// mu held.
func (v *views) remember(e *entry, no *dlock.NotAcquiredError) {
	if interval := e.clock.interval(); no.Reason == dlock.ReasonFull && interval < highFrequency &&
		no.HeldFor >= interval {
		e.state.view.full = fullAnswer{no, time.Now().Add(min(no.ExpiresIn, remembered)), e.limit()}
	}
}

// stillFull returns the answer of a store that has just said that every slot is held; nil: it has
// not.
func (v *views) stillFull(e *entry) *dlock.NotAcquiredError {
	v.mu.Lock()
	defer v.mu.Unlock()
	full := &e.state.view.full
	if full.no == nil || full.limit != e.limit() || !time.Now().Before(full.until) {
		return nil
	}
	return full.no
}

// slotFree forgets that every slot was held.
func (v *views) slotFree(e *entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.state.view.full = fullAnswer{}
}
