package timer

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
)

// Trigger starts a run now and returns once it has started and Status shows it, or an error: a
// *RefusedError that says which limit was reached, or ErrUnknown. It obeys MaxConcurrency and
// MaxPerHost, but no schedule and no MaxPerTick. While the store does not answer, OnStoreDown
// decides; but it is asked, also while ticks do not. What it finds wrong (StoreSetup, StoreFault)
// refuses the run. If many calls to the store are under way it waits in line for its turn, until
// ctx ends. The run does not end with ctx.
func (s *Scheduler) Trigger(ctx context.Context, name string) error {
	if ctx == nil {
		return errNilContext
	}
	refuse := func(reason Reason, err error) error {
		return &RefusedError{Timer: name, Reason: reason, Err: err}
	}
	s.lock()
	e := s.registry.get(name)
	if e == nil {
		s.unlock()
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	if why, err := s.gate(e, false); why != "" {
		s.unlock()
		return refuse(why, err)
	}
	if why := s.registry.enter(e, e.hostLimit()); why != "" { // a tick was faster, or Remove
		s.unlock()
		return refuse(why, nil)
	}
	if !s.shared(e) {
		r := s.begun(e, 0, nil, false)
		s.unlock()
		go s.carryOut(r)
		return nil
	}
	s.unlock()
	turn := s.awaitTurn(ctx, e)
	var lease *dlock.Lease
	err := context.Cause(ctx)
	if turn {
		lease, err = s.acquire(ctx, e, dueTick{})
	}
	s.lock()
	var x settlement
	if turn {
		s.nextInLine()
		x = s.settle(e, dueTick{}, lease, err, s.heard(e, lease, err, dueTick{}))
	}
	if x.start {
		r := s.begun(e, 0, lease, x.degraded)
		s.unlock()
		go s.carryOut(r)
		return nil
	}
	gone, ending := e.gone.Load(), !s.registry.starting()
	s.unlock()
	s.giveBack(e, x.unused)
	switch {
	case x.why == ReasonRejoining:
		return refuse(x.why, nil)
	case gone:
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	case ending:
		return refuse(ReasonDraining, nil)
	case !turn:
		return fmt.Errorf("timer %q: not triggered, %d calls to the store were under way: %w", name, maxAttempts, err)
	case x.why != ReasonPaused && ctx.Err() != nil:
		return err
	}
	return refuse(x.why, x.err)
}
