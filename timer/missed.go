package timer

import (
	"time"

	"github.com/tickslot/tickslot/schedule"
)

const (
	// lateGrace is how late a host may be before a tick counts as missed. A step of the wall clock
	// or a suspended machine makes a host late by up to maxSleep.
	lateGrace = maxSleep + time.Second
	// defaultCatchUpWindow is the default of CatchUp.Window.
	defaultCatchUpWindow = time.Hour
)

// A CatchUpPolicy decides what happens to ticks for which a host is more than eleven seconds late,
// and to ticks that were due while no host was running.
type CatchUpPolicy uint8

const (
	// CatchUpDefault is CatchUpOnce for calendars (schedule.Cron, Daily, At), for a schedule.Every
	// of a day or longer, and for an Except of one of these. It is CatchUpSkip for all other
	// schedules.
	CatchUpDefault CatchUpPolicy = iota
	// CatchUpSkip counts missed ticks as skipped, and continues with the next tick.
	CatchUpSkip
	// CatchUpOnce runs the latest missed tick, once in the fleet, if it is no older than
	// CatchUp.Window. The store decides: it must have known the schedule before the tick was due,
	// and no host may have claimed the tick. Therefore CatchUpOnce needs a store and a MaxPerTick.
	// Without them, a host that was suspended runs the latest tick that it missed, and a host that
	// starts runs none. If other hosts were running in the meantime, one of them has claimed the
	// tick, so it does not run again.
	//
	// The store learns a schedule from the first tick that is claimed, or from the first host that
	// registers the timer. That host announces the schedule with one call to the store within a
	// second. If the host has many timers, it announces a hundred per second, in the order in which
	// they are due. It repeats the call on each day on which it claims no tick. Therefore the first
	// tick of a timer, and the only tick of an At, is also caught up.
	//
	// A tick does not count as missed if it was due during a pause, under a limit of 0, or in a
	// blackout. Nor does it count if it was due while a run was in progress, or before the lease of
	// a crashed run had ended: the host that held the lease was there and skipped the tick. Ticks
	// before a host has registered the timer, or its new schedule, are not missed either.
	// User-defined schedules are identified by their String method or, without one, by their type.
	// While hosts with the old and the new schedule run side by side in a rolling deployment, no
	// tick runs twice. But missed ticks of only one of the schedules are caught up: the one under
	// which the latest tick was claimed, or which was announced since.
	//
	// The store knows only schedules, claims and leases. Therefore a host that starts also runs a
	// tick that was not claimed because the store was down or in quarantine, even if hosts ran that
	// tick without the store. A timer may be removed, with Remove or because its Manager row was
	// gone, and return within the Window. Its latest tick then runs, too, because the store cannot
	// tell a suspended tenant from a fleet that was down. Pause such a timer, or use CatchUpSkip.
	// If no host has had a timer for 40 days, the store forgets it. While the store is down no
	// missed tick runs. With redlock no missed tick ever runs.
	CatchUpOnce
)

func (c CatchUpPolicy) String() string {
	switch c {
	case CatchUpSkip:
		return "skip"
	case CatchUpOnce:
		return "once"
	default:
		return "default"
	}
}

// lastMissed returns the tick to run if no host has claimed it, which the store decides. It returns
// the zero tick if there is none.
func (s *schedules) lastMissed(set *settings, now time.Time) tick {
	if !set.claimsMissed() {
		return tick{}
	}
	last := s.lastDue(set, now, set.catchUpWindow())
	if last.IsZero() {
		return tick{}
	}
	return tick{s: set, at: last.UnixMicro(), missedAt: s.startsAt(set, last).UnixMicro()}
}

// claimsMissed reports whether a missed tick of a timer may run and the store tracks which ticks
// were missed.
func (s *settings) claimsMissed() bool {
	return s.timer.Schedule != nil && s.catchUpWindow() > 0 && !s.local && s.timer.MaxPerTick != unlimited
}

// lastDue returns the latest tick that this host would have tried by now. It returns the zero time
// if that tick is older than window.
func (s *schedules) lastDue(set *settings, now time.Time, window time.Duration) time.Time {
	reached := now.Add(-set.spread(s.host))
	last := schedule.Latest(set.timer.Schedule, reached, window)
	if last.IsZero() || !s.startsAt(set, last).After(now) {
		return last
	}
	before := last.Add(-time.Microsecond) // jitter still delays the last tick
	if window -= reached.Sub(before); window <= 0 {
		return time.Time{}
	}
	return schedule.Latest(set.timer.Schedule, before, window)
}

// catchUpWindow returns the maximum age of a missed tick that still runs, or 0 if none does.
func (s *settings) catchUpWindow() time.Duration {
	if s.timer.CatchUp.Policy != CatchUpOnce {
		return 0
	}
	return s.timer.CatchUp.Window
}
