package timer

import "time"

// A due tick starts a run, waits, or is skipped. When a waiting tick is tried again, the same
// decision is made again. docs/architecture.md has a diagram.

// waitsFor says what a tick waits for.
type waitsFor uint8

const (
	forNothing waitsFor = iota // the tick does not wait
	forTime                    // a time: the end of the store's quarantine, or now
	forRun                     // the end of a run, or a rate that allows another run (FullWait)
	forPlace                   // one of MaxRuns places (MaxRunsWait)
	forCall                    // one of maxInFlight calls to the store; the tick already has a place
)

// A pending is a tick that waits. Each timer has at most one. registry.mu guards it.
type pending struct {
	tick
	on    waitsFor
	why   Reason // why the tick did not start; if a later tick comes due, it is skipped for this reason
	err   error  // the error that goes with why
	until int64  // µs, when it is tried again at the latest; 0: only at its turn, or when its blackouts have returned
	queue *queue // the queue in which it waits for its turn, or nil
	turn  bool   // it has reached the head of the line: a place is reserved for it

	blackoutsAsked bool  // since the last time it was due
	blackout       error // the blackout that it falls into, or nil
}

// abandoned returns the reason with which a waiting tick is skipped if the host drains, or if the
// timer is removed or gets another schedule.
func (p *pending) abandoned() Reason {
	if p.why == ReasonQuarantine {
		return ReasonQuarantine
	}
	return ReasonDraining
}

// waitedTooLong reports whether a tick has waited for a run or a place for the maximum time.
func (p *pending) waitedTooLong(most time.Duration) bool {
	return (p.on == forRun || p.on == forPlace && !p.turn) && time.Since(p.waitsSince) >= most
}

// A refused is a tick that may not start now, with everything that determines whether it waits.
type refused struct {
	why        Reason
	latest     bool          // no later tick was due, and the timer still has the schedule of this tick
	present    bool          // the timer still has the settings with which the tick was tried
	onFull     FullPolicy    // from these settings
	fixed      bool          // whether these settings have a fixed delay
	next       time.Duration // the time until the timer's next tick
	quarantine time.Duration // the time until the store's quarantine ends
	queues     bool          // MaxRunsWait: the tick may wait for a place
	pause      time.Duration // the time until the next attempt, while it waits for a run
	waited     time.Duration // the time waited so far for a run or a place
	maxWait    time.Duration
}

// decide returns what a tick that may not start now waits for. in is the longest time until the
// tick is tried again.
func decide(r refused) (on waitsFor, in time.Duration) {
	full := waitsForRun(r.onFull, r.fixed, r.why)
	switch {
	case !r.latest:
		return forNothing, 0
	case !r.present && (full || r.why == ReasonDraining || r.why == ReasonMaxRuns):
		return forTime, 0 // with the current settings it may start or wait
	case r.why == ReasonQuarantine && r.quarantine < r.next:
		return forTime, r.quarantine // a daily timer must not lose its day because the store restarted
	case full && r.present && r.waited < r.maxWait:
		return forRun, min(r.pause, r.maxWait-r.waited)
	case r.why == ReasonMaxRuns && r.queues && r.waited < r.maxWait:
		return forPlace, r.maxWait - r.waited
	}
	return forNothing, 0
}

// waitsForRun reports whether a tick that was refused for this reason waits until a run ends, or
// until a rate allows another run. With a fixed delay, it does not wait for runs of its own timer,
// because the delay counts from the end of such a run.
func waitsForRun(onFull FullPolicy, fixed bool, why Reason) bool {
	switch {
	case onFull != FullWait:
		return false
	case fixed:
		return why == ReasonLimitFull || why == ReasonLimitRate
	}
	return why == ReasonHostFull || why == ReasonFull || why == ReasonLimitFull || why == ReasonLimitRate
}
