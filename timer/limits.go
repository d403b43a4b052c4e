package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// What limits a timer: what its code says, unless MaxConcurrency is overridden in the whole fleet.
// A MaxPerHost that the code leaves open follows it. MaxPerTick never does: who lets more runs
// overlap on a slow day does not mean to have each mail sent twice.

// limit is MaxConcurrency as it is in force.
func (e *entry) limit() int {
	if limit := e.state.override.limit.Load(); limit > 0 {
		return int(limit)
	}
	return e.timer.MaxConcurrency
}

// claim is the claim of a tick, as the store is asked for it. ok is false if none is to be claimed.
func (e *entry) claim(t dueTick) (tick dlock.Tick, ok bool) {
	if t.at == 0 || e.timer.MaxPerTick == unlimited {
		return tick, false
	}
	tick = dlock.Tick{At: time.UnixMicro(t.at), Max: e.timer.MaxPerTick, Schedule: e.id}
	if t.missed != 0 {
		tick.Missed = time.UnixMicro(t.missed)
	}
	return tick, true
}

// hostLimit is how many runs may go on here. Without a store the fleet's limit is this host's, too.
func (e *entry) hostLimit() int {
	if e.open {
		return e.limit()
	}
	return min(e.timer.MaxPerHost, e.limit())
}

// shared reports whether a timer's limits are kept in the store.
func (e *entry) shared() bool {
	return !e.local && !(e.timer.limitsNothing() && e.limit() == unlimited)
}

// slots is how many the timer has in the store.
func (t Timer) slots() int { return min(t.MaxConcurrency, dlock.MaxSlots) }

// limitsNothing: there is nothing that the store could keep.
func (t Timer) limitsNothing() bool {
	return t.MaxConcurrency == unlimited && t.MaxPerTick == unlimited
}
