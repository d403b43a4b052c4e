package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// The limits of a timer are its settings, unless MaxConcurrency is overridden in the fleet. A
// MaxPerHost that is not set follows the override. MaxPerTick never does: an operator who lets more
// runs overlap on a slow day does not want each mail sent twice.

// limit returns the MaxConcurrency in force.
func (s *settings) limit() int {
	if limit := s.entry.override.limit.Load(); limit > 0 && !s.local {
		return int(limit)
	}
	return s.timer.MaxConcurrency
}

// claim returns the claim of a tick for the store. ok is false if the tick need not be claimed.
func (t tick) claim() (claim dlock.Tick, ok bool) {
	s := t.s
	if t.at == 0 || s.timer.MaxPerTick == unlimited || t.ownStart {
		return claim, false
	}
	claim = dlock.Tick{At: time.UnixMicro(t.at), Max: s.timer.MaxPerTick, Schedule: s.id}
	claim.Delay, _ = s.delay()
	if t.onStart {
		claim.Max = 1
	}
	if t.missedAt != 0 {
		claim.MissedAt = time.UnixMicro(t.missedAt)
	}
	return claim, true
}

// hostLimit returns how many runs may go on here. Without a store this host is the whole fleet.
func (s *settings) hostLimit() int {
	if s.open {
		return s.limit()
	}
	return min(s.timer.MaxPerHost, s.limit())
}

// shared reports whether a timer's limits are kept in the store.
func (s *settings) shared() bool {
	return !s.local && !(s.timer.limitsNothing() && s.limit() == unlimited && len(s.limits()) == 0)
}

// slots returns how many slots the timer has in the store.
func (t Timer) slots() int { return min(t.MaxConcurrency, dlock.MaxSlots) }

// limitsNothing reports whether the timer has no limit that the store would enforce.
func (t Timer) limitsNothing() bool {
	return t.MaxConcurrency == unlimited && t.MaxPerTick == unlimited
}
