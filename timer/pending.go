package timer

import "time"

// A tick that has come due starts a run, waits, or is skipped. When a tick that waits is tried
// again, the same decision is made again. docs/architecture.md draws this.

// waitsFor is what a tick waits for.
type waitsFor uint8

const (
	forNothing waitsFor = iota // it does not wait
	forTime                    // an instant: the end of the store's quarantine, or now
	forRun                     // a run to end, or a rate to allow another (FullWait)
	forPlace                   // one of MaxRuns places (MaxRunsWait)
	forCall                    // one of maxInFlight calls to the store; it has a place
)

// A pending is the one tick of a timer that waits. registry.mu guards it.
type pending struct {
	tick
	on    waitsFor
	why   Reason // why it did not start; if a later tick comes due, it is skipped for this reason
	err   error  // the error that goes with why
	until int64  // µs, when it is tried again at the latest; 0: only at its turn, or when its blackouts have answered
	queue *queue // the queue in which it waits for its turn; nil: none
	turn  bool   // its turn has come: a place is reserved for it

	blackoutsAsked bool  // since it came up
	blackout       error // the blackout that it falls into, or nil
}

// abandoned returns why a waiting tick is skipped when the host drains, or the timer is removed or
// gets another schedule.
func (p *pending) abandoned() Reason {
	if p.why == ReasonQuarantine {
		return ReasonQuarantine
	}
	return ReasonDraining
}

// waitedTooLong reports whether a tick has waited for as long as it may, for a run or a place.
func (p *pending) waitedTooLong(most time.Duration) bool {
	return (p.on == forRun || p.on == forPlace && !p.turn) && time.Since(p.waitsSince) >= most
}

// A refused is a tick that may not start now, with what decides whether it waits.
type refused struct {
	why        Reason
	latest     bool          // no later tick has come due, and its timer still has the schedule of this one
	present    bool          // its timer still has the settings with which it was tried
	onFull     FullPolicy    // of these settings
	fixed      bool          // these settings have a fixed delay
	next       time.Duration // until the timer's next tick is due
	quarantine time.Duration // until the store's quarantine is over
	queues     bool          // MaxRunsWait: it may wait for a place
	pause      time.Duration // until it is tried again while it waits for a run
	waited     time.Duration // for a run or a place, so far
	maxWait    time.Duration
}

// decide returns what a tick that may not start now waits for, and after what time it is tried
// again at the latest.
func decide(r refused) (on waitsFor, in time.Duration) {
	full := waitsForRun(r.onFull, r.fixed, r.why)
	switch {
	case !r.latest:
		return forNothing, 0
	case !r.present && (full || r.why == ReasonDraining || r.why == ReasonMaxRuns):
		return forTime, 0 // with the present settings it may start, or wait
	case r.why == ReasonQuarantine && r.quarantine < r.next:
		return forTime, r.quarantine // a daily timer must not lose its day to a restart of the store
	case full && r.present && r.waited < r.maxWait:
		return forRun, min(r.pause, r.maxWait-r.waited)
	case r.why == ReasonMaxRuns && r.queues && r.waited < r.maxWait:
		return forPlace, r.maxWait - r.waited
	}
	return forNothing, 0
}

// waitsForRun reports whether a tick that was refused for a reason waits until a run ends, or until
// a rate allows another. With a fixed delay it does not wait for runs of its own timer, because the
// delay counts from the end of that run.
func waitsForRun(onFull FullPolicy, fixed bool, why Reason) bool {
	switch {
	case onFull != FullWait:
		return false
	case fixed:
		return why == ReasonLimitFull || why == ReasonLimitRate
	}
	return why == ReasonHostFull || why == ReasonFull || why == ReasonLimitFull || why == ReasonLimitRate
}
