package timer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/lifecycle"
)

// Run runs the timers until ctx ends, and then drains: Ready fails immediately, PreStopDelay
// passes, and nothing more starts. (Only if the store was being asked for a tick and grants it,
// that run still starts, because no other host could have the tick.) Handlers have DrainTimeout to
// finish; then their contexts end, and they have another CancelGrace. The slots are released, and
// queued hook calls have HookGrace. Then Run returns nil, or a *StuckError that names the timers
// whose handlers did not return, and the hook that did not; the slots of these handlers are left to
// expire. When Run has returned, no goroutine of the Scheduler is left except those that a
// StuckError names, and its metrics are unregistered. Run can be called once.
//
// Run first calls the store, and waits up to 5 s (or the TTL, if that is shorter) for an answer. If
// the first answer is that the store is not set up correctly (an error that matches
// dlock.ErrSetup), Run starts nothing and returns it. If the store does not answer, Run starts the
// timers nevertheless. If the store reports such an error later, ticks are skipped until it is
// fixed. Neither case needs a restart.
//
// Before all that, Run calls the function that AdmitBy was given, such as Admit of a
// cluster.Registry. If that refuses this process, Run starts nothing, and returns the error. If it
// refuses later, Run ends as it does when ctx ends, but without PreStopDelay.
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
// nothing; if ask later calls refused, Run stops. Ready and Started return the error, too.
// Registry.Add of package cluster calls AdmitBy, so that a process that uses the store of another
// environment runs no timer.
func (s *Scheduler) AdmitBy(ask func(ctx context.Context, refused func(error)) (stop func(), err error)) {
	s.registry.life.AdmitBy(ask)
}

func (s *Scheduler) run(ctx context.Context) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	s.start(base)
	stopProbing := func() func() { return func() {} }
	var err error
	var draining time.Time // when draining began; zero: nothing was started
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
	// The session is closed last, because it has to renew the slots of all runs until here.
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
		s.planner.setStarted() // timers that are registered later are planned at once
	})
	s.planner.begin(list)
	s.announcer.add(list)
}

// drain keeps further runs from starting. It returns a channel that is closed when the last run has
// ended.
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

// wait waits for the runs to end, and ends their contexts after DrainTimeout. It returns the timers
// of the runs that are left after CancelGrace.
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
