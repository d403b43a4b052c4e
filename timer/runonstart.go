package timer

import (
	"time"
)

// A RunOnStartPolicy decides whether a timer also runs when Run begins on a host, or when it is
// registered while Run is running, without waiting for its Schedule.
//
// Such a run starts immediately: Delay does not postpone it. Like any tick, it may be refused
// because of MaxPerHost, MaxConcurrency, Limits, MaxRuns, a pause, or a blackout. A refused run is
// not repeated later. While a store that restarted is in quarantine, the run waits, unless the next
// tick is due before the quarantine ends. OnFull and OnStoreDown apply. Run.OnStart returns true
// for such a run. The run replaces the run of a missed tick (CatchUp). Update does not cause such a
// run. A timer that was removed and is registered again counts as new. So does the timer of a
// Manager whose row disappears and returns. New and Register refuse RunOnStart with schedule.After,
// because such a timer starts immediately anyway, unless it ran less than the delay ago.
type RunOnStartPolicy uint8

const (
	// RunOnStartNever waits for the Schedule.
	RunOnStartNever RunOnStartPolicy = iota

	// RunOnStartOnce runs the Schedule's latest tick, however old it is, once in the fleet, if no
	// host has claimed that tick or a later one. Therefore a new timer runs immediately on the
	// first host. A restart, a rolling deployment, or a crash during the run does not run the timer
	// again before its next tick. If the Schedule has no tick yet, such as an At of future
	// instants, the timer does not run.
	//
	// To run a timer once in the fleet after each deployment, use control.Control.Trigger. A store
	// may forget the claim of a tick after 40 days (redislock, sqllock); a later start then runs
	// the tick again. redlock refuses ticks that are older than half an hour. While the store is
	// down, StoreDownRunLocal runs the timer on every host that starts.
	//
	// RunOnStartOnce requires a Schedule and a MaxPerTick other than NoLimit. Without a store, or
	// with LocalOnly, it is the same as RunOnStartEachHost.
	RunOnStartOnce

	// RunOnStartEachHost runs the timer on every host that starts, even if it ran a moment ago, and
	// even after a crash during such a run. MaxPerTick does not apply, but MaxConcurrency does. If
	// hosts start together and the timer should run on one after the other, set OnFull to FullWait.
	// The Tick of the run is the time of the start.
	RunOnStartEachHost
)

func (r RunOnStartPolicy) String() string {
	switch r {
	case RunOnStartNever:
		return "never"
	case RunOnStartOnce:
		return "once"
	case RunOnStartEachHost:
		return "each_host"
	default:
		return "unknown"
	}
}

// checkRunOnStart reports the faults of RunOnStart. shared means that the timer uses the store, and
// claims that hosts claim its ticks.
func (t Timer) checkRunOnStart(shared, claims bool, fault func(string, string, ...any)) {
	switch {
	case t.RunOnStart > RunOnStartEachHost:
		fault("RunOnStart", "%d is not a policy: use timer.RunOnStartNever, timer.RunOnStartOnce or "+
			"timer.RunOnStartEachHost", t.RunOnStart)
	case t.RunOnStart != RunOnStartOnce || !shared:
	case t.Schedule == nil:
		fault("RunOnStart", "RunOnStartOnce runs the latest tick, and a timer without a Schedule has none: set one, "+
			"or use timer.RunOnStartEachHost")
	case !claims:
		fault("RunOnStart", "RunOnStartOnce claims a tick, which MaxPerTick: NoLimit does not: set MaxPerTick, or use "+
			"timer.RunOnStartEachHost")
	}
}

// atOnce returns the tick to try when this host starts, or when the timer is registered. It is the
// tick of RunOnStart or, without RunOnStart, a missed tick. It returns the zero tick if there is
// none.
func (s *schedules) atOnce(set *settings, now time.Time) tick {
	if set.timer.RunOnStart == RunOnStartNever {
		return s.lastMissed(set, now)
	}
	if set.timer.RunOnStart == RunOnStartEachHost || set.local {
		return tick{s: set, at: now.UnixMicro(), onStart: true, ownStart: true}
	}
	// Hosts agree on this tick. Ticks that Delay still postpones are excluded, because they have
	// yet to run.
	last := s.lastDue(set, now, previousWithin)
	if last.IsZero() {
		return tick{}
	}
	return tick{s: set, at: last.UnixMicro(), onStart: true}
}
