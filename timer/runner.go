package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

// A runner carries out runs: it calls the handler with its context, retries it, enforces
// MaxRunTime, and keeps the slot until the handler has returned. It asks the store watch whether
// the store serves, and reports to the ledger.
type runner struct {
	log      *lineLog
	events   *events
	registry *registry
	limits   *limits
	waiting  *waiting
	ledger   *ledger
	store    *storeWatch  // nil: no store
	triggers *triggers    // likewise: the place of a run that has ended is offered to them first
	started  atomic.Int64 // runs without a fence
	runHost

	reacquisitions rateLimit

	gaveUp atomic.Bool // Run no longer waits for the runs that are left
}

// A runHost is what all runs of a host have in common.
type runHost struct {
	holder   dlock.Holder
	idPrefix string // of runs without a slot in the store, see Run.ID
	// The parent of all runs' contexts: it has the values of Run's context, and is cancelled when
	// draining takes too long. Set when Run begins.
	base context.Context
}

func newRunHost(h dlock.Holder) runHost { return runHost{holder: h, idPrefix: h.String() + "-"} }

// startRun returns a started run, which the caller carries out. The run takes over the caller's
// place.
func (n *runner) startRun(t tick, by *triggering, lease *dlock.Lease, degraded bool) *Run {
	r := n.newRun(t, lease == nil && !degraded)
	r.trigger = by
	n.begin(t.s, r, lease)
	n.log.flush()
	return r
}

// runAll starts runs without the store, and carries out each in a goroutine. The caller has taken a
// place for each. The scheduling goroutine has to start only one.
func (n *runner) runAll(starts []tick) {
	last := len(starts) - 1
	for _, t := range starts[:last] {
		go n.carryOut(n.startRun(t, nil, nil, false))
	}
	n.carryOut(n.startRun(starts[last], nil, nil, false))
}

func (n *runner) newRun(t tick, local bool) *Run {
	r := &Run{settings: t.s, host: &n.runHost, tick: t.at, caughtUp: t.missedAt != 0, onStart: t.onStart,
		startedAt: time.Now(), local: local}
	r.ctx.run = r
	r.attempt.Store(1)
	return r
}

// carryOut calls the handler and cleans up after it.
func (n *runner) carryOut(r *Run) {
	s := r.settings
	// The clean-up is deferred: a handler may call runtime.Goexit, as t.FailNow does.
	err, returned := errGoexit, false
	defer func() {
		cause := r.ctx.cause()
		outcome := outcomeOf(cause, err, !returned && guard.Panicked(err) != nil)
		r.ctx.end()
		n.finish(s, r, outcome, unmarked(err))
		if r.trigger != nil {
			r.trigger.handle.end(outcome, cause, unmarked(err))
		}
	}()
	for retry := true; retry; retry = n.again(s, r, err) {
		err, returned = errGoexit, false
		err = guard.Call("handler", func() error {
			err := s.timer.Run(&r.ctx)
			returned = true // it may return a *PanicError, of something that it has called
			return err
		})
	}
}

// begin records that a run has started.
func (n *runner) begin(s *settings, r *Run, lease *dlock.Lease) {
	e := s.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.place(r)
	n.number(r, lease)
	r.maxRunTimer = time.AfterFunc(time.Until(r.endsAt()), func() { n.outOfTime(s, r) })
	switch {
	case lease != nil:
		n.hold(s, r, lease)
	case !r.local:
		r.degraded.Store(true)
		n.store.views.beginDegraded(s)
		n.store.startedWithout()
	}
	n.ledger.began(&s.entry.record, r)
}

// number gives a run what its ID is made of.
func (n *runner) number(r *Run, lease *dlock.Lease) {
	if lease != nil && lease.Fence() != 0 {
		r.firstSlot, r.number = int32(lease.Slot()), int64(lease.Fence())
	} else {
		r.firstSlot, r.number = -1, n.started.Add(1)
	}
	if r.trigger != nil {
		r.trigger.handle.timer, r.trigger.handle.id = r.Timer(), r.ID()
	}
}

// finish releases the slot of a run, records the outcome, and gives back its place.
func (n *runner) finish(s *settings, r *Run, outcome Outcome, err error) {
	took := time.Since(r.startedAt)
	logged := n.events.logsEnd(outcome)
	e := s.entry
	e.mu.Lock()
	abandoned := n.gaveUp.Load()
	r.over = true // it gets no slot any more
	if r.late {
		e.overdue.Add(-1)
	}
	e.endedAt.Store(int64(time.Since(programStart)))
	if r.unwatch != nil {
		r.unwatch()
	}
	r.maxRunTimer.Stop()
	if r.Degraded() {
		n.store.views.endDegraded(s)
	}
	lease := r.lease.Load()
	e.mu.Unlock()
	if lease != nil && !abandoned { // once Run no longer waits for it, the slot is left to expire
		if outcome == OutcomeOK {
			lease.MarkSucceeded()
		}
		n.release(s, lease)
	}
	// After the release, as Update or a timer that takes the name may have set it meanwhile.
	now := e.settings.Load()
	if delay, fixed := now.delay(); fixed {
		n.waiting.moveNext(now, delay)
	}
	if logged {
		n.events.logEnd(r, outcome, took, err)
	}
	// Both at once: nobody sees the run ended while its place is still taken.
	n.registry.mu.Lock()
	e.mu.Lock()
	e.runs[r.place] = nil
	n.ledger.ended(&e.record, r, outcome, took, r.late, err)
	if n.store != nil {
		n.store.views.slotFree(s)
	}
	n.countReleased(r)
	n.limits.leave(s)
	n.registry.leaveLocked(s)
	e.mu.Unlock()
	n.registry.mu.Unlock()
	if !n.triggers.runEnded(s) {
		n.waiting.runEnded(s)
	}
	n.log.flush()
}

// countReleased counts, once, that a run no longer holds its slot. Called with entry.mu held.
func (n *runner) countReleased(r *Run) {
	if !r.holding {
		return
	}
	r.holding = false
	n.store.metrics.held(time.Since(r.lease.Load().AcquiredAt()))
}

// lost is called when the lease of a run ends.
func (n *runner) lost(s *settings, r *Run, lease *dlock.Lease) {
	err := lease.Err()
	lost, ok := errors.AsType[*dlock.LostError](err)
	if !ok {
		return // released: the handler has returned
	}
	lostAt := r.now()
	goOn := lost.Silent && s.timer.OnStoreDown == StoreDownRunLocal && reasonOf(lost.Err) == ReasonStoreDown &&
		!n.store.notSetUp(s) // its last answer may have been that it is not set up right
	switch { // before waiting for a mutex
	case lost.RevokedBy != nil:
		n.cancel(r, &CanceledError{By: *lost.RevokedBy, Err: lost})
	case !goOn:
		r.ctx.lose(err)
	}
	defer n.log.flush()
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	if goOn && !r.over && !r.Degraded() {
		n.store.views.wentDown(s)
		r.degraded.Store(true)
		n.store.views.beginDegraded(s)
	}
	n.countReleased(r)
	if lost.RevokedBy != nil {
		return
	}
	n.ledger.count(&s.entry.record, func(t *tally) { t.leasesLost++ })
	n.events.leaseLost(r, lease, lostAt, goOn, lost)
}

// outOfTime is called at MaxRunTime, and at 1.5 × MaxRunTime.
func (n *runner) outOfTime(s *settings, r *Run) {
	defer n.log.flush()
	cause := r.ctx.cause()
	lost := cause != nil && !guard.Is(cause, ErrMaxRunTime) // without a mutex: it may be the store's error
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	switch {
	case r.over:
		return
	case r.late:
		n.overlong(s, r)
		return
	case lost:
		return // it ended earlier, which was logged
	}
	if l := r.lease.Load(); l != nil {
		l.StopRenewing()
	}
	n.log.later(slog.LevelWarn,
		"timer: a run reached its MaxRunTime: its context has ended and its slot is no longer renewed",
		r.info().line("max_run_time", s.timer.MaxRunTime)...)
	r.late = true
	s.entry.overdue.Add(1)
	if r.tick != 0 {
		n.ledger.countOverdue(&s.entry.record)
	}
	r.maxRunTimer.Reset(s.timer.MaxRunTime / 2)
}

// overlong is called with entry.mu held.
func (n *runner) overlong(s *settings, r *Run) {
	n.log.later(slog.LevelError,
		"timer: a run ignores its context: it goes on beyond 1.5 × MaxRunTime and keeps its place on this host "+
			"until it returns",
		r.info().line("running_for", time.Since(r.startedAt).Round(time.Millisecond))...)
	n.ledger.count(&s.entry.record, func(t *tally) { t.overlongHolds++ })
}

// isOver reports whether the handler of a run has returned.
func (n *runner) isOver(r *Run) bool {
	e := r.settings.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.over
}

// counts returns how many runs of a timer there are on this host, and how many of them are past
// MaxRunTime and ignore their context.
func (n *runner) counts(s *settings) (runs, overdue int) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return s.entry.count((*Run).any), int(s.entry.overdue.Load())
}

// giveUp returns the names of the timers whose runs have not ended, once per run. Their slots are
// left to expire.
func (n *runner) giveUp() (stuck []string) {
	n.gaveUp.Store(true)
	for _, s := range n.registry.all() {
		runs, _ := n.counts(s)
		for range runs {
			stuck = append(stuck, s.timer.Name)
		}
		n.giveUpWaits(s)
	}
	slices.Sort(stuck)
	return stuck
}

// giveUpWaits ends the waits for the results of runs that have not ended.
func (n *runner) giveUpWaits(s *settings) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, r := range s.entry.runs {
		if r != nil && r.trigger != nil {
			r.trigger.handle.end(OutcomeDraining, ErrDraining, nil)
		}
	}
}

// release logs an error at Debug only: a lost lease was logged when it was lost, and a release that
// was not answered is repeated by the session.
func (n *runner) release(s *settings, lease *dlock.Lease) {
	if err := lease.Release(n.base); err != nil {
		n.log.Debug("timer: the slot was not released", "timer", s.timer.Name, "slot", lease.Slot(), "err", err)
	}
}

// place gives a run the lowest free place on this host. Called with entry.mu held.
func (e *entry) place(r *Run) {
	r.place = int32(slices.Index(e.runs, nil))
	if r.place < 0 {
		r.place = int32(len(e.runs))
		e.runs = append(e.runs, nil)
	}
	e.runs[r.place] = r
}

// count counts the runs for which holds is true. Called with entry.mu held.
func (e *entry) count(holds func(*Run) bool) (n int) {
	for _, r := range e.runs {
		if r != nil && holds(r) {
			n++
		}
	}
	return n
}

// CancelRun cancels a run on this host, whose Run.ID it takes: the run's context ends at once (its
// cause is a *CanceledError), the run is not retried, and its outcome is OutcomeCanceled, whatever
// the handler returns. The slot is free when the handler has returned, never before. A handler that
// ignores its context goes on. A run whose context has ended already is left alone.
//
// It returns ErrNoTimer, or ErrNoRun if that run does not go on here. control.Control.CancelRun
// cancels runs on other hosts.
func (s *Scheduler) CancelRun(timer, id string, by driver.Cause) error {
	if err := by.Validate(); err != nil {
		return fmt.Errorf("timer %q: run %q: %w", timer, id, err)
	}
	set := s.registry.named(timer)
	if set == nil {
		return fmt.Errorf("%w: %q", ErrNoTimer, timer)
	}
	r := s.runner.find(set, id)
	if r == nil {
		return fmt.Errorf("timer %q: run %q: %w", timer, id, ErrNoRun)
	}
	s.runner.cancel(r, &CanceledError{By: by})
	return nil
}

// find returns the run with that ID; nil: there is none.
func (n *runner) find(s *settings, id string) *Run {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, r := range s.entry.runs {
		if r != nil && !r.over && r.ID() == id {
			return r
		}
	}
	return nil
}

// cancel ends the context of a run, unless it has ended. Called without a mutex held.
func (n *runner) cancel(r *Run, cause *CanceledError) {
	r.ctx.lose(cause)
	if r.ctx.cause() == error(cause) {
		n.log.Info("timer: run canceled",
			"timer", r.Timer(), "slot", r.Slot(), "run", r.ID(), "by", cause.By.By, "note", cause.By.Note)
	}
}
