package timer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/lifecycle"
)

// Run runs the timers until ctx ends, and then drains. Ready fails immediately, PreStopDelay
// passes, and no further run starts. The exception is a tick for which a call to the store is in
// progress: if the store grants it, its run still starts, because no other host could claim the
// tick. Handlers have DrainTimeout to finish. Then Run cancels their contexts and waits for up to
// CancelGrace. The slots are released, and queued hook calls have HookGrace. Then Run returns nil
// or a *StuckError. A *StuckError names the timers whose handlers did not return, and the hook that
// did not return. The slots of these handlers are left to expire. When Run has returned, no
// goroutine of the Scheduler is left except those that a StuckError names, and its metrics are
// unregistered. Run can be called once.
//
// Run first calls the store, and waits up to 5 s (or the TTL, if that is shorter) for an answer. If
// the first answer is that the store is not set up correctly (an error that matches
// dlock.ErrSetup), Run starts nothing and returns that error. If the store does not answer, Run
// starts the timers anyway. If the store reports such an error later, ticks are skipped until it is
// fixed. Neither case needs a restart.
//
// Before calling the store, Run calls the function that was passed to AdmitBy, such as Admit of a
// cluster.Registry. If that function refuses this process, Run starts nothing and returns the
// error. If it refuses later, Run ends as it does when ctx ends, but without PreStopDelay.
func (s *Scheduler) Run(ctx context.Context) error {
	life := &s.registry.life
	if err := life.Begin(ctx); err != nil {
		return err
	}
	if s.metrics != nil {
		defer s.config.Registerer.Unregister(s.metrics) // so that another Scheduler may use it
	}
	return life.Work(ctx, s.run)
}

// AdmitBy makes Run call ask before it starts anything. If ask returns an error, Run starts
// nothing. If ask later calls refused, Run stops. In both cases Ready and Started also return the
// error. Registry.Add of package cluster calls AdmitBy, so that a process that uses the store of
// another environment does not run any timer.
func (s *Scheduler) AdmitBy(ask func(ctx context.Context, refused func(error)) (stop func(), err error)) {
	s.registry.life.AdmitBy(ask)
}

func (s *Scheduler) run(ctx context.Context) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	s.start(base)
	stopProbing := func() func() { return func() {} }
	var err error
	var draining time.Time // when draining began; zero if Run started nothing
	if s.store != nil {
		p := newProber(s.store, s.session)
		p.reacquire, p.triggers = s.acquirer.reacquire, s.triggers
		stopProbing = p.start()
		err = p.awaitFirstAnswer(ctx)
	}
	if err != nil {
		s.registry.notSetUp.Store(&err)
	} else {
		s.planner.loop(ctx.Done())
		draining = time.Now()
		s.log.Info("timer: draining", "cause", context.Cause(ctx))
		s.registry.setPhase(PhasePreStop)
		if s.config.PreStopDelay > 0 && s.registry.life.Refused() == nil {
			over, stop := context.WithTimeout(context.Background(), s.config.PreStopDelay)
			s.planner.loop(over.Done())
			stop()
		}
	}
	idle := s.drain()
	leaveFleet := stopProbing()
	stuck := s.wait(idle, cancel)
	leaveFleet()
	// Close the session last, because it has to renew the slots of all runs until here.
	var closeErr error
	if s.session != nil {
		closeErr = s.session.Close(base)
	}
	s.registry.setPhase(PhaseStopped)
	if closeErr != nil && err == nil {
		s.log.Warn("timer: could not release some slots: they expire within a TTL", "err", closeErr)
	}
	if !draining.IsZero() {
		s.log.Info("timer: stopped", "drain", time.Since(draining), "still_running", lifecycle.StillRunning(stuck))
	}
	if hook := s.events.close(); len(stuck) > 0 || hook != "" {
		left := &StuckError{Timers: stuck, Hook: hook}
		if err == nil {
			return left
		}
		return errors.Join(err, left)
	}
	return err
}

func (s *Scheduler) start(base context.Context) {
	var list []*settings
	s.registry.begin(func() {
		s.runner.base = base
		if s.store != nil {
			s.store.begin(base)
		}
		list = slices.DeleteFunc(s.registry.list(), (*settings).removed)
		s.planner.setStarted() // timers that are registered later are planned immediately
	})
	s.planner.begin(list)
	s.announcer.add(list)
}

// drain prevents further runs from starting. It returns a channel that is closed when the last run
// has ended.
func (s *Scheduler) drain() <-chan struct{} {
	s.registry.setPhase(PhaseDraining)
	s.announcer.close()
	for _, p := range s.waiting.close() {
		s.ledger.skip(p.s, p.at, p.abandoned(), nil)
		s.waiting.leave(p)
	}
	s.planner.stop()
	for _, set := range s.registry.registered() {
		s.runner.endWaits(set)
	}
	s.log.flush()
	return s.registry.whenIdle()
}

// wait waits for the runs to end, and cancels their contexts after DrainTimeout. It returns the
// timers whose runs have not ended after CancelGrace.
func (s *Scheduler) wait(idle <-chan struct{}, cancel context.CancelCauseFunc) []string {
	if lifecycle.Drain(idle, s.config.DrainTimeout, func() {
		s.log.Warn("timer: handlers did not finish within DrainTimeout; ending their contexts",
			"drain_timeout", s.config.DrainTimeout)
		cancel(ErrDraining)
	}, CancelGrace) {
		return nil
	}
	return s.runner.giveUp()
}
