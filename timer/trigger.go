package timer

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// Trigger starts a run on this host now, or refuses it. It never keeps a trigger for later;
// control.Control.Trigger does that, for the fleet. It returns once the run has started and Status
// shows it; TriggeredRun.Wait returns the result of the run. Otherwise it returns a *RefusedError
// with the reason, ErrNoTimer, ErrPayloadTooLong, or the cause of ctx.
//
// Any registered timer may be triggered at any time between Running and the drain: its schedule,
// blackouts and MaxPerTick do not matter. MaxConcurrency, MaxPerHost, Limits, MaxRuns and pauses
// apply. Two things make Trigger wait, until ctx ends: if MaxRuns runs go on, OnMaxRuns decides;
// and if 64 calls to the store are in flight, it waits for its turn. If the store does not answer,
// OnStoreDown applies; but Trigger calls the store even while its breaker is open. A set-up fault
// (ReasonStoreSetup) or a fault of a key (ReasonStoreFault) refuses the run.
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
	err := s.tryTrigger(ctx, name, t)
	if set := s.registry.get(name); set != nil {
		s.ledger.triggered(set, err)
	}
	if err != nil {
		return nil, err
	}
	return t.handle, nil
}

// tryTrigger starts a run, or returns why it does not.
func (s *Scheduler) tryTrigger(ctx context.Context, name string, by *triggering) error {
	refuse := func(reason Reason, err error) error {
		return &RefusedError{Timer: name, Reason: reason, Err: err}
	}
	set := s.registry.get(name)
	if set == nil {
		return fmt.Errorf("%w: %q", ErrNoTimer, name)
	}
	why, err := s.gate.why(set, false)
	if why == "" {
		why = s.registry.enter(set, set.hostLimit()) // a tick may have taken the last place
	}
	if why == ReasonMaxRuns && s.waiting.awaitPlace(ctx, set) {
		if why, err = s.gate.why(set, false); why == "" {
			why = s.registry.enterReserved(set, set.hostLimit())
		}
		if why != "" {
			s.registry.giveUp(set)
		}
	}
	switch {
	case !set.current():
		if why == "" {
			s.registry.leave(set)
		}
		return s.tryTrigger(ctx, name, by) // with those of Update, or it is unknown now
	case why == ReasonMaxRuns && !s.registry.starting():
		return refuse(ReasonDraining, nil)
	case why == ReasonMaxRuns && ctx.Err() != nil:
		return fmt.Errorf("timer %q: not triggered, MaxRuns (%d) runs were active: %w", name, s.config.MaxRuns,
			context.Cause(ctx))
	case why != "":
		return refuse(why, err)
	}
	if !set.shared() {
		if full := s.limits.enter(set, false); full != nil {
			s.registry.leave(set)
			return refuse(ReasonLimitFull, full)
		}
		go s.runner.carryOut(s.runner.startRun(tick{s: set}, by, nil, false))
		return nil
	}
	x, ok := s.acquirer.trigger(ctx, set, by)
	switch {
	case x.start:
		return nil
	case x.why == ReasonRejoining:
		return refuse(x.why, nil)
	case !ok && !set.current():
		return s.tryTrigger(ctx, name, by)
	case set.removed():
		return fmt.Errorf("%w: %q", ErrNoTimer, name)
	case !s.registry.starting():
		return refuse(ReasonDraining, nil)
	case !ok:
		return fmt.Errorf("timer %q: not triggered, %d calls to the store were under way: %w", name, maxInFlight,
			context.Cause(ctx))
	case x.why != ReasonPaused && ctx.Err() != nil:
		return x.err
	}
	return refuse(x.why, x.err)
}

// newTriggers returns what starts the runs that a Control has triggered.
func (s *Scheduler) newTriggers() *triggers {
	return &triggers{
		log: s.log, registry: s.registry,
		queues: fleet.Queues{Store: s.store.caps.Controller, Timeout: s.config.StoreTimeout},
		base:   func() context.Context { return s.runner.base }, holder: s.config.Holder, taker: rand.Text(),
		waiting: make(map[string]*waitingTriggers), expired: make(map[*entry]int),
		why: func(set *settings) Reason {
			if s.store.overrides.paused(set) != nil {
				return ReasonPaused
			}
			if _, full := s.waiting.inLine(); full {
				return ReasonMaxRuns
			}
			why, _ := s.gate.why(set, false)
			if why == "" && s.store.views.stillFull(set) != nil {
				return ReasonFull
			}
			return why
		},
		start: func(ctx context.Context, set *settings, t *triggering, again bool) error {
			err := s.tryTrigger(ctx, set.timer.Name, t)
			if err == nil || !again {
				s.ledger.triggered(set, err)
			}
			return err
		},
	}
}
