package timer

import "github.com/tickslot/tickslot/dlock"

// A settlement is the outcome of an acquire for a tick or a Trigger.
type settlement struct {
	start     bool         // a run starts
	degraded  bool         // without the store
	postponed bool         // the tick is tried again later
	why       Reason       // why nothing starts; "": a run starts, or the tick is postponed
	err       error        // the store's error or refusal
	unused    *dlock.Lease // to be released; nil: none
}

// settle decides what happens with a tick, or with a Trigger (the zero dueTick), after the store
// has granted a lease or returned an error. degraded: the store did not answer, and the timer goes
// on without it.
func (a *acquirer) settle(e *entry, t dueTick, lease *dlock.Lease, err error, degraded bool) settlement {
	var paused error
	if degraded {
		paused = a.store.overrides.paused(e)
	}
	switch {
	case a.runner.handOver(e, lease):
		return settlement{why: ReasonRejoining}
	case paused != nil: // as the store last reported, before it stopped answering
		return settlement{why: ReasonPaused, err: paused}
	case lease == nil && (!degraded || t.missedAt != 0): // a missed tick may have run elsewhere
		if a.postpone(e, t, err) {
			return settlement{postponed: true}
		}
		return settlement{why: reasonOf(err), err: err}
	case e.removed(), !a.registry.starting() && !a.mustRun(e, t, lease): // since the store was called
		return settlement{why: ReasonDraining, unused: lease}
	}
	if full := a.limits.enter(e, lease != nil); full != nil {
		return settlement{why: ReasonLimitFull, err: full}
	}
	return settlement{start: true, degraded: degraded}
}

// mustRun reports whether a tick starts although the host was told to end while the store answered:
// it was claimed, so that no other host can have it, and Run waits for it as for every run.
func (a *acquirer) mustRun(e *entry, t dueTick, lease *dlock.Lease) bool {
	_, claimed := e.claim(t)
	return claimed && lease != nil && a.runner.base.Err() == nil
}

// withoutStore applies OnStoreDown to a tick without calling the store.
func (a *acquirer) withoutStore(e *entry, t dueTick, why error, degraded bool) {
	x := a.settle(e, t, nil, why, degraded)
	if x.start {
		go func() { a.runner.carryOut(a.runner.startRun(e, t, nil, nil, true)) }()
		return
	}
	a.turnAway(e, t, x)
}

// postpone plans another try of a tick for the end of the store's quarantine, if that is why it was
// refused.
func (a *acquirer) postpone(e *entry, t dueTick, err error) bool {
	no := refusal(err)
	return no != nil && no.Reason == dlock.ReasonQuarantine && t.at != 0 &&
		a.planner.postpone(max(no.ExpiresIn, unknownQuarantine), e, t)
}

// afterRefusal plans when to ask again about a timer with a fixed delay, if the store tells.
func (a *acquirer) afterRefusal(e *entry, err error) {
	delay, fixed := e.delay()
	if !fixed {
		return
	}
	switch no := refusal(err); {
	case no == nil:
	case no.Reason == dlock.ReasonTickEarly:
		a.planner.dueIn(e, min(no.ExpiresIn, delay))
	case no.Reason == dlock.ReasonFull: // a run goes on, so nothing is due before the delay has passed
		a.planner.dueIn(e, max(delay, minRetryIn))
	}
}

// giveBack gives back the place of a run that did not start, and releases its lease if there is
// one.
func (a *acquirer) giveBack(e *entry, lease *dlock.Lease) {
	if lease != nil {
		a.runner.release(e, lease)
	}
	a.registry.leave(e)
}
