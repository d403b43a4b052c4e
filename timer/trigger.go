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
	if !e.shared() {
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
		x = s.settle(e, dueTick{}, lease, err, s.store.answer(e, dueTick{}, lease, err))
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

// triggerLock is a semaphore whose ticks are the triggers of a timer: whoever claims one runs it.
const triggerLock = "tickslot:trigger:"

// triggerSlots is more than one, so that a claim whose host died, or could not give it back, does
// not keep others from the next trigger until it ends.
const triggerSlots = 100

// runTriggered runs a timer that somebody triggered in the fleet, if no other host is to do it.
func (s *Scheduler) runTriggered(e *entry, t dlock.Trigger) {
	defer s.registry.done()
	name := e.timer.Name
	if !s.awaitTurn(s.base, e) {
		return // another host may
	}
	claim, err := s.session.Semaphore(triggerLock+name, triggerSlots).TryAcquireTick(s.base, dlock.Tick{At: t.At, Max: 1})
	s.lock()
	s.nextInLine()
	s.unlock()
	if err != nil {
		if r := reasonOf(err); r != ReasonTickTaken && r != ReasonTickLate { // else another host has it
			s.log.Warn("timer: a run that was triggered could not be claimed", "timer", name, "by", t.By, "note", t.Note, "err", err)
		}
		return
	}
	defer func() { _ = claim.Release(s.base) }() // what the store does not answer ends with its TTL
	if err := s.Trigger(s.base, name); err != nil {
		s.log.Warn("timer: a run that was triggered did not start", "timer", name, "by", t.By, "note", t.Note, "err", err)
		return
	}
	s.log.Info("timer: triggered", "timer", name, "by", t.By, "note", t.Note)
}
