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
	e := s.registry.get(name)
	if e == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	why, err := s.gate.why(e, false)
	if why == "" {
		why = s.registry.enter(e, e.hostLimit()) // which a tick may just have filled
	}
	switch {
	case e.gone.Load():
		if why == "" {
			s.registry.leave(e)
		}
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	case why != "":
		return refuse(why, err)
	}
	if !e.shared() {
		go s.runner.carryOut(s.runner.startRun(e, 0, nil, false))
		return nil
	}
	x, ok := s.acquirer.trigger(ctx, e)
	switch {
	case x.start:
		return nil
	case x.why == ReasonRejoining:
		return refuse(x.why, nil)
	case e.gone.Load():
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	case !s.registry.starting():
		return refuse(ReasonDraining, nil)
	case !ok:
		return fmt.Errorf("timer %q: not triggered, %d calls to the store were under way: %w", name, maxAttempts,
			context.Cause(ctx))
	case x.why != ReasonPaused && ctx.Err() != nil:
		return x.err
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
	if !s.acquirer.awaitTurn(s.runner.base, e) {
		return // another host may
	}
	claim, err := s.session.Semaphore(triggerLock+name, triggerSlots).TryAcquireTick(s.runner.base,
		dlock.Tick{At: t.At, Max: 1})
	s.acquirer.next()
	s.log.flush()
	if err != nil {
		if r := reasonOf(err); r != ReasonTickTaken && r != ReasonTickLate { // else another host has it
			s.log.Warn("timer: a run that was triggered could not be claimed",
				"timer", name, "by", t.By, "note", t.Note, "err", err)
		}
		return
	}
	defer func() { _ = claim.Release(s.runner.base) }() // what the store does not answer ends with its TTL
	if err := s.Trigger(s.runner.base, name); err != nil {
		s.log.Warn("timer: a run that was triggered did not start",
			"timer", name, "by", t.By, "note", t.Note, "err", err)
		return
	}
	s.log.Info("timer: triggered", "timer", name, "by", t.By, "note", t.Note)
}
