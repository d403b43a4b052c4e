package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// What limits a timer: what its code says, unless people ordered another MaxConcurrency for the whole fleet. Limits that the code
// leaves open follow it.

// limitsLeftOpen are the limits that the code does not state.
type limitsLeftOpen struct{ perTick, perHost bool }

func (t Timer) leftOpen() limitsLeftOpen {
	return limitsLeftOpen{perTick: t.MaxPerTick == 0, perHost: t.MaxPerHost == 0}
}

// limit is MaxConcurrency as it is in force. Called with mu held, as all of these.
func (e *entry) limit() int {
	if ordered := e.told().orders.limit; ordered > 0 {
		return ordered
	}
	return e.timer.MaxConcurrency
}

func (e *entry) perTick() int {
	if e.open.perTick {
		return e.limit()
	}
	return e.timer.MaxPerTick
}

// claim is the claim of a tick, as the store is asked for it: where the code leaves MaxPerTick open it is the store that knows MaxConcurrency.
// ok is false if none is to be claimed.
func (e *entry) claim(t dueTick) (tick dlock.Tick, ok bool) {
	if t.at == 0 || e.perTick() == NoLimit {
		return tick, false
	}
	tick = dlock.Tick{At: time.UnixMicro(t.at), Missed: t.missed}
	if !e.open.perTick {
		tick.Max = e.timer.MaxPerTick
	}
	return tick, true
}

// hostLimit is how many runs may go on here. Without a store the fleet's limit is this host's, too.
func (e *entry) hostLimit() int {
	if e.open.perHost {
		return e.limit()
	}
	return min(e.timer.MaxPerHost, e.limit())
}

// shared reports whether a timer's limits are kept in the store.
func (s *Scheduler) shared(e *entry) bool {
	return s.session != nil && !e.timer.LocalOnly && !(e.timer.unlimited() && e.limit() == NoLimit)
}

// slots is how many the timer has in the store.
func (t Timer) slots() int { return min(t.MaxConcurrency, dlock.MaxSlots) }

// unlimited: there is nothing that the store could keep.
func (t Timer) unlimited() bool { return t.MaxConcurrency == NoLimit && t.MaxPerTick == NoLimit }
