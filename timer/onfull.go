package timer

import (
	"math/rand/v2"
	"time"
)

// A FullPolicy is what happens to a tick that finds as many runs in progress as its timer may have.
type FullPolicy uint8

const (
	// FullSkip skips the tick (ReasonHostFull, ReasonFull, ReasonLimitFull, ReasonLimitRate). If
	// ticks are less than 10 s apart, and a run has held a slot for a whole interval, the host
	// remembers the store's "full" for up to 1 s, and skips ticks without a call.
	FullSkip FullPolicy = iota

	// FullWait makes the tick wait until a run ends, and then start, under the same limits
	// (MaxPerHost, MaxConcurrency and Limits). At most one tick of each timer waits: a later one
	// takes the place of the earlier, which is skipped as with FullSkip. A tick is also skipped
	// when it has waited for Config.MaxWait, when a pause or a blackout begins, when the host
	// drains, and when the timer is removed. A Trigger does not wait.
	//
	// A tick is claimed when its run starts, not while it waits: several hosts may wait for the
	// same tick, and it has at most MaxPerTick runs as always. With schedule.After a tick waits for
	// Limits only: while a run of the timer itself is in progress, nothing is due until the delay
	// after its end.
	//
	// When a run of the timer ends on this host, the tick is tried immediately. To learn that a
	// slot has become free elsewhere, a host has to ask the store. It asks after pauses of half the
	// time that the tick has waited, at least StoreTimeout/4 and at most TTL/3 (5 s), each
	// shortened at random by up to half. So a run starts up to TTL/3 later than it could, and a
	// tick that waits for a long time costs each host at most one call per TTL/6, and none while
	// MaxPerHost runs are in progress there. A tick that waits for the Rate of a limit asks again
	// when the store has said that a start is allowed.
	FullWait
)

func (f FullPolicy) String() string {
	switch f {
	case FullSkip:
		return "skip"
	case FullWait:
		return "wait"
	default:
		return "unknown"
	}
}

// pause returns how long to wait for the next try of a tick that was refused for a reason and has
// waited for the given time. Called with the registry's mutex held.
func (w *waiting) pause(s *settings, why Reason, waited time.Duration) time.Duration {
	if why == ReasonHostFull && s.placesTaken() < s.hostLimit() {
		return 0 // a run has ended since it was refused
	}
	pause := min(max(waited/2, w.minPause), w.maxPause)
	return pause - rand.N(pause/2+1)
}

// runEnded tries the tick that has waited longest for a run like this one to end, and no other,
// because only one place has become free. If that is the tick of another timer, which may also wait
// for something else, it tries the tick of the run's own timer, too.
func (w *waiting) runEnded(s *settings) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	own := w.forRun[s.entry]
	for _, p := range [...]*pending{w.longestFor(s, own), own} {
		if p != nil && p.why != ReasonLimitRate && w.forRun[p.s.entry] == p {
			delete(w.forRun, p.s.entry)
			w.at(p, w.clock.now())
		}
	}
}

// longestFor returns the tick that has waited longest of those that a run with settings s may have
// blocked; nil: there is none. Called with the registry's mutex held.
func (w *waiting) longestFor(s *settings, own *pending) (longest *pending) {
	longest = own
	if len(s.limits()) == 0 {
		return longest
	}
	for _, p := range w.forRun {
		if p.why == ReasonLimitFull && sharesLimit(p.s, s) &&
			(longest == nil || p.waitsSince.Before(longest.waitsSince)) {
			longest = p
		}
	}
	return longest
}
