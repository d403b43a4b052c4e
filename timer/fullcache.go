package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A "full" of the store is remembered for at most fullFor, for timers that are due more often than
// every shortInterval: calls that are almost certainly refused would only load the store.
const (
	fullFor       = time.Second
	shortInterval = 10 * time.Second
)

// A fullAnswer is a refusal because all slots are held, and how long it is remembered; the zero
// value: there is none.
type fullAnswer struct {
	no    *dlock.NotAcquiredError
	until time.Duration // since programStart
	limit int           // MaxConcurrency that was in force: the answer says nothing about another one
}

// remember remembers a "full" if a slot has been held for longer than an interval: such a run has
// probably not ended by the next tick. If it has, that tick is skipped although a slot is free; the
// cache never starts one too many. Called with entry.mu held.
func (v *views) remember(s *settings, no *dlock.NotAcquiredError) {
	if interval := s.entry.ticks.interval(); no.Reason == dlock.ReasonFull && interval < shortInterval &&
		no.HeldFor >= interval {
		s.entry.view.full = fullAnswer{no, time.Since(programStart) + min(no.ExpiresIn, fullFor), s.limit()}
	}
}

// stillFull returns the remembered "full" of a timer; nil: there is none.
func (v *views) stillFull(s *settings) *dlock.NotAcquiredError {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	full := &s.entry.view.full
	if full.no == nil || full.limit != s.limit() || time.Since(programStart) >= full.until {
		return nil
	}
	return full.no
}

// slotFree drops the remembered "full" of a timer. Called with entry.mu held.
func (v *views) slotFree(s *settings) {
	s.entry.view.full = fullAnswer{}
}
