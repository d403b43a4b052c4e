package timer

import (
	"math/rand/v2"
	"time"
)

// A FullPolicy decides what happens to a tick while as many runs are in progress as its timer may
// have.
type FullPolicy uint8

const (
	// FullSkip skips the tick (ReasonHostFull, ReasonFull, ReasonLimitFull, ReasonLimitRate). If
	// ticks are less than 10 s apart, and a run has held a slot for a whole interval, the host
	// caches the store's "full" answer for up to 1 s and skips ticks without a call.
	FullSkip FullPolicy = iota

	// FullWait makes the tick wait until a run ends, and then start under the same limits
	// (MaxPerHost, MaxConcurrency and Limits). At most one tick of each timer waits. A later tick
	// replaces the earlier one, which is skipped as with FullSkip. A tick is also skipped when it
	// has waited for Config.MaxWait, when a pause or a blackout begins, when the host drains, and
	// when the timer is removed. A Trigger does not wait.
	//
	// A tick is claimed when its run starts, not while it waits. Several hosts may wait for the
	// same tick, which still has at most MaxPerTick runs. With schedule.After a tick waits for
	// Limits only: while a run of the timer itself is in progress, no tick is due until the delay
	// after the end of that run.
	//
	// When a run of the timer ends on this host, the tick is tried immediately. To learn that a
	// slot has become free elsewhere, a host has to call the store. It does so after pauses of half
	// the time that the tick has waited, at least StoreTimeout/4 and at most TTL/3 (5 s), each
	// randomly shortened by up to half. A run may therefore start up to TTL/3 later than possible.
	// A tick that waits for a long time costs each host at most one call per TTL/6, and none while
	// MaxPerHost runs are in progress on that host. A tick that waits for the Rate of a limit is
	// tried again when, according to the store, the rate allows a start.
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

// pause returns how long to wait for the next attempt of a tick that was refused for this reason
// and has waited for the given time. The caller holds the registry's mutex.
func (w *waiting) pause(s *settings, why Reason, waited time.Duration) time.Duration {
	if why == ReasonHostFull && s.placesTaken() < s.hostLimit() {
		return 0 // a run has ended since the refusal
	}
	pause := min(max(waited/2, w.minPause), w.maxPause)
	return pause - rand.N(pause/2+1)
}

// runEnded tries the tick that has waited longest for a run such as this one to end. It tries no
// other tick, because only one place has become free. If the tick belongs to another timer, it may
// also be waiting for something else. In that case runEnded also tries the tick of the run's own
// timer.
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

// longestFor returns the tick that has waited longest among those that a run with settings s may
// have blocked, or nil if there is none. The caller holds the registry's mutex.
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
