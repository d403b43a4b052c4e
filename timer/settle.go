package timer

import (
	"errors"

	"github.com/tickslot/tickslot/dlock"
)

// A settlement is what becomes of a tick, or of a Trigger, now that the store has answered, or has
// not.
type settlement struct {
	start     bool         // a run starts
	degraded  bool         // without the store
	postponed bool         // the tick is tried again later
	why       Reason       // nothing starts; "": it does, or the tick is postponed
	err       error        // what the store said of that
	unused    *dlock.Lease // to be given back; nil: none
}

// settle says what becomes of a tick, or of a Trigger (the zero dueTick), for which the store has
// granted a lease or returned an error. degraded: it did not answer, and the timer goes on without
// it.
func (a *acquirer) settle(e *entry, t dueTick, lease *dlock.Lease, err error, degraded bool) settlement {
	var paused error
	if degraded {
		paused = a.store.overrides.paused(e)
	}
	switch {
	case a.runner.handOver(e, lease):
		return settlement{why: ReasonRejoining}
	case paused != nil: // the store said so before it fell silent
		return settlement{why: ReasonPaused, err: paused}
	case lease == nil && (!degraded || t.missed != 0): // nobody knows whether a missed tick was run
		if a.postpone(e, t, err) {
			return settlement{postponed: true}
		}
		return settlement{why: reasonOf(err), err: err}
	case !a.registry.mayStart(e): // since the store was asked; a tick that was claimed is spent
		return settlement{why: ReasonDraining, unused: lease}
	}
	return settlement{start: true, degraded: degraded}
}

// withoutStore does at once with a tick what its timer does while the store is down.
func (a *acquirer) withoutStore(e *entry, t dueTick, why error, degraded bool) {
	x := a.settle(e, t, nil, why, degraded)
	if x.start {
		go func() { a.runner.carryOut(a.runner.startRun(e, t.at, nil, true)) }()
		return
	}
	a.ledger.skip(&e.state.record, t.at, x.why, x.err)
	a.registry.leave(e)
}

// postpone has a tick tried again when the store's quarantine is over, if that is why it was
// refused.
func (a *acquirer) postpone(e *entry, t dueTick, err error) bool {
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	return ok && no.Reason == dlock.ReasonQuarantine && t.at != 0 &&
		a.planner.postpone(max(no.ExpiresIn, unknownQuarantine), e, t)
}

// giveBack gives up the place of a run that did not come about, and its lease if there is one.
func (a *acquirer) giveBack(e *entry, lease *dlock.Lease) {
	if lease != nil {
		a.runner.release(e, lease)
	}
	a.registry.leave(e)
}
