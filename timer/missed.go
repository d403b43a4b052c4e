package timer

import (
	"time"

	"github.com/tickslot/tickslot/schedule"
)

const (
	// lateGrace is how late a host may come to a tick before that counts as missed. A step of the
	// wall clock or a suspended machine costs maxSleep.
	lateGrace = maxSleep + time.Second
	// DefaultCatchUpWindow is how old a missed tick may be that CatchUpOnce still runs.
	DefaultCatchUpWindow = time.Hour
)

// A CatchUpPolicy is what a host does about ticks that it comes to more than eleven seconds late,
// or that came due while no host was there.
type CatchUpPolicy uint8

const (
	// CatchUpDefault is CatchUpOnce for calendars (schedule.Cron, Daily, At, and Except of these),
	// and CatchUpSkip for all other schedules.
	CatchUpDefault CatchUpPolicy = iota
	// CatchUpSkip counts them and goes on with the next.
	CatchUpSkip
	// CatchUpOnce runs the latest of them, once in the fleet, if it is no older than
	// CatchUp.Window. The store decides: it must know that an earlier tick of the same schedule was
	// claimed and this one was not. So it needs a store and a MaxPerTick; without them a host makes
	// up for what it slept through, and one that starts for nothing. A host that slept while others
	// did not, and one that starts in a fleet that was there, find that the tick was claimed.
	//
	// Nothing was missed if the latest tick came due in a pause, under a limit of 0, or in a
	// blackout; or while a run was going on, or the lease of one that died had not ended: whoever
	// had that was there, and skipped the tick. Nor by a timer that is new, or has another schedule
	// than the latest claim: it misses nothing before its first claim. A schedule of your own is
	// told from others by its String, or without one by its type.
	//
	// The store knows claims and leases and nothing else. So a host that starts runs also what
	// nobody claimed because the store was down or in quarantine, even if hosts ran it without the
	// store. And stores forget a timer that has asked for nothing for 40 days: a tick that is more
	// than that after the one before is never made up for.
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

// lastMissed returns the tick that is to be made up for if no host had it, as far as this host can
// know before it has asked the store; the zero dueTick: none.
func (tt *timetable) lastMissed(e *entry, now time.Time) dueTick {
	last := tt.lastDue(e, now)
	if last.IsZero() {
		return dueTick{}
	}
	return dueTick{at: last.UnixMicro(), missed: tt.startsAt(e, last).UnixMicro()}
}

// lastDue returns the latest tick to which this host would have come by now; the zero time: none
// that is made up for.
func (tt *timetable) lastDue(e *entry, now time.Time) time.Time {
	window := e.catchUpWindow()
	if e.timer.Schedule == nil || window == 0 || !tt.catchesUp || e.timer.LocalOnly || e.timer.MaxPerTick == unlimited {
		return time.Time{}
	}
	reached := now.Add(-e.spread(tt.host))
	last := schedule.Latest(e.timer.Schedule, reached, window)
	if last.IsZero() || !tt.startsAt(e, last).After(now) {
		return last
	}
	before := last.Add(-time.Microsecond) // its jitter still delays the last
	if window -= reached.Sub(before); window <= 0 {
		return time.Time{}
	}
	return schedule.Latest(e.timer.Schedule, before, window)
}

// catchUpWindow is how old a tick may be that is still made up for; 0: none is.
func (e *entry) catchUpWindow() time.Duration {
	if e.timer.CatchUp.Policy != CatchUpOnce {
		return 0
	}
	return e.timer.CatchUp.Window
}
