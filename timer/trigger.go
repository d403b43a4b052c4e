package timer

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
)

// Trigger starts a run on this host now, or refuses it: it never keeps a trigger for later, as
// Control.Trigger does for the fleet. It returns once the run has started and Status shows it;
// TriggeredRun.Wait returns what comes of it. Otherwise it returns a *RefusedError with the reason,
// ErrUnknown, ErrPayloadTooLong, or the cause of ctx.
//
// Any registered timer may be triggered at any time between Running and the drain: its schedule,
// blackouts and MaxPerTick do not matter. What decides is whether there is room: MaxConcurrency,
// MaxPerHost, Limits, MaxRuns and pauses apply. Two things make Trigger wait, until ctx ends: if
// MaxRuns runs go on, OnMaxRuns decides; and if 64 calls to the store are in flight, it waits for
// its turn. If the store does not answer, OnStoreDown applies; but Trigger calls the store even
// while its breaker is open. A set-up fault (ReasonStoreSetup) or a fault of a key
// (ReasonStoreFault) refuses the run.
//
// The context of the run has the values of ctx, such as a trace or a user, and those of Run's
// context where ctx has none. It does not end with ctx.
func (s *Scheduler) Trigger(ctx context.Context, name string, options TriggerOptions) (*TriggeredRun, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("timer %q: not triggered: %w", name, err)
	}
	t := newTriggering(options, context.WithoutCancel(ctx))
	if err := s.trigger(ctx, name, t); err != nil {
		return nil, err
	}
	return t.handle, nil
}

// trigger starts a run, or returns why it does not.
func (s *Scheduler) trigger(ctx context.Context, name string, by *triggering) error {
	refuse := func(reason Reason, err error) error {
		return &RefusedError{Timer: name, Reason: reason, Err: err}
	}
	e := s.registry.get(name)
	if e == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	why, err := s.gate.why(e, false)
	if why == "" {
		why = s.registry.enter(e, e.hostLimit()) // a tick may have taken the last place
	}
	if why == ReasonMaxRuns && s.registry.awaitPlace(ctx, e) {
		if why, err = s.gate.why(e, false); why == "" {
			why = s.registry.enterReserved(e, e.hostLimit())
		}
		if why != "" {
			s.registry.giveUp(e)
		}
	}
	switch {
	case e.gone():
		if why == "" {
			s.registry.leave(e)
		}
		return s.trigger(ctx, name, by) // Update has replaced it, or it is unknown now
	case why == ReasonMaxRuns && !s.registry.starting():
		return refuse(ReasonDraining, nil)
	case why == ReasonMaxRuns && ctx.Err() != nil:
		return fmt.Errorf("timer %q: not triggered, MaxRuns (%d) runs were active: %w", name, s.config.MaxRuns,
			context.Cause(ctx))
	case why != "":
		return refuse(why, err)
	}
	if !e.shared() {
		if full := s.limits.enter(e, false); full != nil {
			s.registry.leave(e)
			return refuse(ReasonLimitFull, full)
		}
		go s.runner.carryOut(s.runner.startRun(e, dueTick{}, by, nil, false))
		return nil
	}
	x, ok := s.acquirer.trigger(ctx, e, by)
	switch {
	case x.start:
		return nil
	case x.why == ReasonRejoining:
		return refuse(x.why, nil)
	case !ok && e.gone():
		return s.trigger(ctx, name, by)
	case e.removed():
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

// triggerLock is a semaphore whose ticks are the triggers of a timer: the host that claims one runs
// it.
const triggerLock = "tickslot:trigger:"

// triggerSlots is more than one, so that a claim whose host crashed, or could not release it, does
// not block the next trigger until it expires.
const triggerSlots = 100

// runTriggered runs a timer that was triggered through a Control, unless another host claims the
// trigger.
func (s *Scheduler) runTriggered(e *entry, t dlock.Trigger) {
	defer s.registry.done()
	name := e.timer.Name
	if _, full := s.registry.inLine(); full { // another host may have room; if none has, this line is the only sign
		s.log.Info("timer: a triggered run does not start here: MaxRuns runs are active",
			"timer", name, "by", t.By, "note", t.Note)
		return
	}
	for !s.acquirer.awaitTurn(s.runner.base, e) {
		if !e.gone() || e.removed() {
			return // another host may run it
		}
		e = e.latest()
	}
	claim, err := s.session.Semaphore(triggerLock+name, triggerSlots).TryAcquireTick(s.runner.base,
		dlock.Tick{At: t.At, Max: 1})
	s.acquirer.next()
	s.log.flush()
	if err != nil {
		if r := reasonOf(err); r != ReasonTickTaken && r != ReasonTickLate { // otherwise another host has claimed it
			s.log.Warn("timer: a run that was triggered could not be claimed",
				"timer", name, "by", t.By, "note", t.Note, "err", err)
		}
		return
	}
	defer func() { _ = claim.Release(s.runner.base) }() // if the store does not answer, it expires with its TTL
	if err := s.trigger(s.runner.base, name, newTriggering(TriggerOptions{By: t.Origin}, nil)); err != nil {
		s.log.Warn("timer: a run that was triggered did not start",
			"timer", name, "by", t.By, "note", t.Note, "err", err)
		return
	}
	s.log.Info("timer: triggered", "timer", name, "by", t.By, "note", t.Note)
}
