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
// it. Called with mu held.
func (s *Scheduler) settle(e *entry, t dueTick, lease *dlock.Lease, err error, degraded bool) settlement {
	switch {
	case s.handOver(e, lease):
		return settlement{why: ReasonRejoining}
	case degraded && s.store.views.paused(e) != nil: // the store said so before it fell silent
		return settlement{why: ReasonPaused, err: s.store.views.paused(e)}
	case lease == nil && (!degraded || t.missed != 0): // nobody knows whether a missed tick was run
		if s.postpone(e, t, err) {
			return settlement{postponed: true}
		}
		return settlement{why: reasonOf(err), err: err}
	case e.gone.Load() || !s.registry.starting(): // since the store was asked; a tick that was claimed is spent
		return settlement{why: ReasonDraining, unused: lease}
	}
	return settlement{start: true, degraded: degraded}
}

// withoutStore does at once with a tick that has a place what its timer does while the store is
// down. Called with mu held.
func (s *Scheduler) withoutStore(e *entry, t dueTick) {
	_, why, _ := s.store.breakerOf(e)
	x := s.settle(e, t, nil, why, s.store.views.down(e, why))
	if x.start {
		go s.run(e, t.at, nil, true)
		return
	}
	s.ledger.skip(&e.state.record, t.at, x.why, x.err)
	s.registry.leave(e)
}

// postpone has a tick tried again when the store's quarantine is over, if that is why it was
// refused.
func (s *Scheduler) postpone(e *entry, t dueTick, err error) bool {
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	return ok && no.Reason == dlock.ReasonQuarantine && t.at != 0 &&
		s.planner.postpone(max(no.ExpiresIn, unknownQuarantine), e, t)
}

// giveBack gives up the place of a run that did not come about, and its lease if there is one.
func (s *Scheduler) giveBack(e *entry, lease *dlock.Lease) {
	if lease != nil {
		s.release(e, lease)
	}
	s.lock()
	defer s.unlock()
	s.registry.leave(e)
}
