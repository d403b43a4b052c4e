package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// The limits of a timer are its settings, unless MaxConcurrency is overridden in the fleet. A
// MaxPerHost that is not set follows the override. MaxPerTick never does: an operator who lets more
// runs overlap on a slow day does not want each mail sent twice.

// limit returns the MaxConcurrency in force.
func (e *entry) limit() int {
	if limit := e.state.override.limit.Load(); limit > 0 && !e.local {
		return int(limit)
	}
	return e.timer.MaxConcurrency
}

// claim returns the claim of a tick for the store. ok is false if the tick need not be claimed.
func (e *entry) claim(t dueTick) (tick dlock.Tick, ok bool) {
	if t.at == 0 || e.timer.MaxPerTick == unlimited || t.ownStart {
		return tick, false
	}
	tick = dlock.Tick{At: time.UnixMicro(t.at), Max: e.timer.MaxPerTick, Schedule: e.id}
	tick.Delay, _ = e.delay()
	if t.onStart {
		tick.Max = 1
	}
	if t.missedAt != 0 {
		tick.MissedAt = time.UnixMicro(t.missedAt)
	}
	return tick, true
}

// hostLimit returns how many runs may go on here. Without a store this host is the whole fleet.
func (e *entry) hostLimit() int {
	if e.open {
		return e.limit()
	}
	return min(e.timer.MaxPerHost, e.limit())
}

// shared reports whether a timer's limits are kept in the store.
func (e *entry) shared() bool {
	return !e.local && !(e.timer.limitsNothing() && e.limit() == unlimited && len(e.limits()) == 0)
}

// slots returns how many slots the timer has in the store.
func (t Timer) slots() int { return min(t.MaxConcurrency, dlock.MaxSlots) }

// limitsNothing reports whether the timer has no limit that the store would enforce.
func (t Timer) limitsNothing() bool {
	return t.MaxConcurrency == unlimited && t.MaxPerTick == unlimited
}
