package timer

import (
	"time"

	"github.com/tickslot/tickslot/schedule"
)

const (
	// lateGrace is how late a host may be before a tick counts as missed. A step of the wall clock
	// or a suspend of the machine makes it late by up to maxSleep.
	lateGrace = maxSleep + time.Second
	// DefaultCatchUpWindow is the default of CatchUp.Window.
	DefaultCatchUpWindow = time.Hour
)

// A CatchUpPolicy decides about ticks for which a host is more than eleven seconds late, and ticks
// that came due while no host was running.
type CatchUpPolicy uint8

const (
	// CatchUpDefault is CatchUpOnce for calendars (schedule.Cron, Daily, At, and Except of these),
	// and CatchUpSkip for all other schedules.
	CatchUpDefault CatchUpPolicy = iota
	// CatchUpSkip counts missed ticks as skipped, and goes on with the next tick.
	CatchUpSkip
	// CatchUpOnce runs the latest missed tick, once in the fleet, if it is no older than
	// CatchUp.Window. The store decides: it must know that an earlier tick of the same schedule was
	// claimed and this one was not. So it needs a store and a MaxPerTick. Without them, a host that
	// was suspended runs the latest tick that it missed, and a host that starts runs none. If other
	// hosts were running meanwhile, the tick has been claimed and does not run again.
	//
	// A tick does not count as missed if it came due during a pause, under a limit of 0, or in a
	// blackout; or while a run went on, or before the lease of a crashed run had ended: the host
	// that held the lease was there, and skipped the tick. Nor are ticks missed before the first
	// claim of a timer that is new or has a new schedule. Schedules of your own are told apart by
	// their String method or, without one, by their type.
	//
	// The store knows only claims and leases. So a host that starts also runs a tick that was not
	// claimed because the store was down or in quarantine, even if hosts ran it without the store.
	// A store forgets a timer for which no host has called it for 40 days: a missed tick that is
	// more than 40 days after the one before never runs.
	CatchUpOnce
)

func (p CatchUpPolicy) String() string {
	switch p {
	case CatchUpSkip:
		return "skip"
	case CatchUpOnce:
		return "once"
	default:
		return "default"
	}
}

// lastMissed returns the tick to be run if no host claimed it, which the store decides; the zero
// dueTick: none.
func (tt *timetable) lastMissed(e *entry, now time.Time) dueTick {
	if !e.claimsMissed() {
		return dueTick{}
	}
	last := tt.lastDue(e, now, e.catchUpWindow())
	if last.IsZero() {
		return dueTick{}
	}
	return dueTick{at: last.UnixMicro(), missedAt: tt.startsAt(e, last).UnixMicro()}
}

// claimsMissed reports whether the store knows which ticks of a timer were missed, and one of them
// may run.
func (e *entry) claimsMissed() bool {
	return e.timer.Schedule != nil && e.catchUpWindow() > 0 && !e.local && e.timer.MaxPerTick != unlimited
}

// lastDue returns the latest tick that this host would have tried by now, if it is no older than
// window; else the zero time.
func (tt *timetable) lastDue(e *entry, now time.Time, window time.Duration) time.Time {
	reached := now.Add(-e.spread(tt.host))
	last := schedule.Latest(e.timer.Schedule, reached, window)
	if last.IsZero() || !tt.startsAt(e, last).After(now) {
		return last
	}
	before := last.Add(-time.Microsecond) // the last is still delayed by its jitter
	if window -= reached.Sub(before); window <= 0 {
		return time.Time{}
	}
	return schedule.Latest(e.timer.Schedule, before, window)
}

// catchUpWindow returns how old a missed tick may be that still runs; 0: none does.
func (e *entry) catchUpWindow() time.Duration {
	if e.timer.CatchUp.Policy != CatchUpOnce {
		return 0
	}
	return e.timer.CatchUp.Window
}
