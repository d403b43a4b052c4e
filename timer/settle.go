package timer

import "github.com/tickslot/tickslot/dlock"

// A settlement is what becomes of a tick or a Trigger after the store was asked.
type settlement struct {
	start    bool         // a run starts
	degraded bool         // without the store
	why      Reason       // why nothing starts; "": a run starts
	err      error        // the store's error or refusal
	unused   *dlock.Lease // to be released; nil: none
}

// settle decides what happens with a tick, or with a Trigger (without an instant), after the store
// has granted a lease or returned an error. degraded: the store did not answer, and the timer goes
// on without it.
func (a *acquirer) settle(t tick, lease *dlock.Lease, err error, degraded bool) settlement {
	s := t.s
	var paused error
	if degraded {
		paused = a.store.overrides.paused(s)
	}
	switch {
	case a.runner.handOver(s, lease):
		return settlement{why: ReasonRejoining}
	case paused != nil: // as the store last reported, before it stopped answering
		return settlement{why: ReasonPaused, err: paused}
	case lease == nil && (!degraded || t.missedAt != 0): // a missed tick may have run elsewhere
		return settlement{why: reasonOf(err), err: err}
	case s.removed(), !a.registry.starting() && !a.mustRun(t, lease): // since the store was called
		return settlement{why: ReasonDraining, unused: lease}
	}
	if full := a.limits.enter(s, lease != nil); full != nil {
		return settlement{why: ReasonLimitFull, err: full}
	}
	return settlement{start: true, degraded: degraded}
}

// mustRun reports whether a tick starts although the host was told to end while the store answered:
// it was claimed, so that no other host can have it, and Run waits for it as for every run.
func (a *acquirer) mustRun(t tick, lease *dlock.Lease) bool {
	_, claimed := t.claim()
	return claimed && lease != nil && a.runner.base.Err() == nil
}

// withoutStore applies OnStoreDown to a tick without calling the store.
func (a *acquirer) withoutStore(t tick, why error, degraded bool) {
	x := a.settle(t, nil, why, degraded)
	if x.start {
		go func() { a.runner.carryOut(a.runner.startRun(t, nil, nil, true)) }()
		return
	}
	a.turnAway(t, x)
}

// afterRefusal plans when to ask again about a timer with a fixed delay, if the store tells.
func (a *acquirer) afterRefusal(s *settings, err error) {
	delay, fixed := s.delay()
	if !fixed {
		return
	}
	switch no := refusal(err); {
	case no == nil:
	case no.Reason == dlock.ReasonTickEarly:
		a.waiting.moveNext(s, min(no.ExpiresIn, delay))
	case no.Reason == dlock.ReasonFull: // a run goes on, so nothing is due before the delay has passed
		a.waiting.moveNext(s, max(delay, minRetryIn))
	}
}

// giveBack gives back the place of a run that did not start, and releases its lease if there is
// one.
func (a *acquirer) giveBack(s *settings, lease *dlock.Lease) {
	if lease != nil {
		a.runner.release(s, lease)
	}
	a.registry.leave(s)
}
