package timer

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Run runs the timers until ctx ends, and then drains: Ready fails at once, PreStopDelay passes,
// nothing more starts, handlers have DrainTimeout to finish and CancelGrace after their contexts
// have ended, and the slots are released. It returns nil, or a *StuckError that names the handlers
// that did not return; their slots are left to expire. Nothing else of the Scheduler's is left
// then, and its metrics are no longer registered. It can be called once.
//
// It first asks the store, and waits up to 5 s (the TTL, if that is shorter) for it. If the first
// answer is that the store is not set up right (an error that matches dlock.ErrSetup), Run starts
// nothing and returns it. A store that does not answer keeps nothing from starting, and one that
// says so later costs ticks until it is mended; neither needs a restart.
func (s *Scheduler) Run(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	if err := s.start(base); err != nil {
		return err
	}
	if s.metrics != nil {
		defer s.config.Registerer.Unregister(s.metrics) // which another Scheduler may want to use now
	}
	stopProbing := func() func() { return func() {} }
	var err error
	if s.store != nil {
		p := newProber(s.store, s.session)
		p.reacquire, p.trigger = s.reacquire, s.runTriggered
		stopProbing = p.start()
		err = p.greet(ctx)
	}
	if err == nil {
		s.planner.loop(ctx.Done())
		s.log.Info("timer: draining", "cause", context.Cause(ctx))
		s.setPhase(leaving)
		if s.config.PreStopDelay > 0 {
			over, stop := context.WithTimeout(context.Background(), s.config.PreStopDelay)
			s.planner.loop(over.Done())
			stop()
		}
	}
	idle := s.drain()
	leaveFleet := stopProbing()
	stuck := s.wait(idle, cancel)
	leaveFleet()
	// The session goes last: it has renewed the slots of all runs up to here.
	var closeErr error
	if s.session != nil {
		closeErr = s.session.Close(base)
	}
	s.setPhase(stopped)
	if closeErr != nil && err == nil {
		s.log.Warn("timer: what may still be held in the store is left to expire", "err", closeErr)
	}
	if len(stuck) > 0 {
		left := &StuckError{Timers: stuck}
		if err == nil {
			return left
		}
		return errors.Join(err, left)
	}
	return err
}

func (s *Scheduler) start(base context.Context) error {
	s.lock()
	if err := s.registry.begin(); err != nil { // if not, Register puts timers into the heap itself from here on
		s.unlock()
		return err
	}
	s.base = base
	if s.store != nil {
		s.store.base, s.store.greeting = base, true
	}
	entries := s.registry.registered()
	s.unlock()
	s.planner.begin(entries)
	return nil
}

func (s *Scheduler) setPhase(p phase) {
	s.lock()
	defer s.unlock()
	s.registry.setPhase(p)
}

// drain stops starting. It returns a channel that is closed when the last run has ended.
func (s *Scheduler) drain() <-chan struct{} {
	s.lock()
	defer s.unlock()
	s.registry.setPhase(draining)
	for e, t := s.queue.oldest(); e != nil; e, t = s.queue.oldest() {
		s.ledger.skip(&e.state.record, t.at, ReasonDraining, nil)
		s.registry.leave(e)
	}
	s.queue.dismiss(nil)
	s.planner.stop()
	for _, e := range s.registry.registered() {
		e.endWaits()
	}
	return s.registry.whenIdle()
}

// wait waits for the runs to end, first by themselves and then with their contexts ended. It
// returns the timers of those that are left.
func (s *Scheduler) wait(idle <-chan struct{}, cancel context.CancelCauseFunc) []string {
	patience := time.NewTimer(s.config.DrainTimeout)
	defer patience.Stop()
	select {
	case <-idle:
		return nil
	case <-patience.C:
	}
	s.log.Warn("timer: handlers did not finish within DrainTimeout; ending their contexts", "drain_timeout", s.config.DrainTimeout)
	cancel(ErrDraining)
	patience.Reset(CancelGrace)
	select {
	case <-idle:
		return nil
	case <-patience.C:
	}
	s.lock()
	defer s.unlock()
	s.given = true
	var stuck []string
	collect := func(e *entry) {
		for range e.state.count((*Run).any) {
			stuck = append(stuck, e.timer.Name)
		}
	}
	for _, e := range s.registry.all() {
		collect(e)
	}
	slices.Sort(stuck)
	return stuck
}
