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

// A runner executes runs. It calls the handler with its context, retries it, enforces MaxRunTime,
// and keeps the slot until the handler has returned. It asks the storeWatch whether the store
// serves, and reports to the ledger.
type runner struct {
	log      *lineLog
	events   *events
	registry *registry
	limits   *limits
	waiting  *waiting
	ledger   *ledger
	store    *storeWatch  // nil without a store
	triggers *triggers    // nil without a store; the place of an ended run is offered to them first
	started  atomic.Int64 // number of runs without a fence
	runHost

	reacquisitions rateLimit

	gaveUp atomic.Bool // Run no longer waits for the remaining runs
}

// A runHost is the state that all runs of a host share.
type runHost struct {
	holder   dlock.Holder
	idPrefix string // prefix of the IDs of runs without a slot in the store, see Run.ID
	// base is the parent of all runs' contexts. It has the values of Run's context, and is canceled
	// when draining takes too long. It is set when Run begins.
	base context.Context
}

func newRunHost(h dlock.Holder) runHost { return runHost{holder: h, idPrefix: h.String() + "-"} }

// startRun returns a started run, which the caller must pass to carryOut. The run takes over the
// caller's place.
func (r *runner) startRun(t tick, by *triggering, lease *dlock.Lease, degraded bool) *Run {
	run := r.newRun(t, lease == nil && !degraded)
	run.trigger = by
	r.begin(t.s, run, lease)
	r.log.flush()
	return run
}

// runAll starts runs without the store, each in its own goroutine. The scheduling goroutine starts
// only one goroutine for this. The caller has taken a place for each run.
func (r *runner) runAll(starts []tick) {
	last := len(starts) - 1
	for _, t := range starts[:last] {
		go r.carryOut(r.startRun(t, nil, nil, false))
	}
	r.carryOut(r.startRun(starts[last], nil, nil, false))
}

func (r *runner) newRun(t tick, local bool) *Run {
	run := &Run{settings: t.s, host: &r.runHost, tick: t.at, caughtUp: t.missedAt != 0, onStart: t.onStart,
		startedAt: time.Now(), local: local}
	run.ctx.run = run
	run.attempt.Store(1)
	return run
}

// carryOut calls the handler and cleans up after it.
func (r *runner) carryOut(run *Run) {
	s := run.settings
	// The cleanup is deferred, because a handler may call runtime.Goexit, as t.FailNow does.
	err, returned := errGoexit, false
	defer func() {
		cause := run.ctx.cause()
		outcome := outcomeOf(cause, err, !returned && guard.Panicked(err) != nil)
		run.ctx.end()
		r.finish(s, run, outcome, unmarked(err))
		if run.trigger != nil {
			run.trigger.handle.end(outcome, cause, unmarked(err))
		}
	}()
	for retry := true; retry; retry = r.again(s, run, err) {
		err, returned = errGoexit, false
		err = guard.Call("handler", func() error {
			err := s.timer.Run(&run.ctx)
			returned = true // distinguishes a returned *PanicError from a panic
			return err
		})
	}
}

// begin records that a run has started.
func (r *runner) begin(s *settings, run *Run, lease *dlock.Lease) {
	e := s.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.place(run)
	r.number(run, lease)
	run.maxRunTimer = time.AfterFunc(time.Until(run.endsAt()), func() { r.outOfTime(s, run) })
	switch {
	case lease != nil:
		r.hold(s, run, lease)
	case !run.local:
		run.degraded.Store(true)
		r.store.views.beginDegraded(s)
		r.store.startedWithout()
	}
	r.ledger.began(&s.entry.record, run)
}

// number sets the numbers that make up the ID of a run.
func (r *runner) number(run *Run, lease *dlock.Lease) {
	if lease != nil && lease.Fence() != 0 {
		run.firstSlot, run.number = int32(lease.Slot()), int64(lease.Fence())
	} else {
		run.firstSlot, run.number = -1, r.started.Add(1)
	}
	if run.trigger != nil {
		run.trigger.handle.timer, run.trigger.handle.id = run.Timer(), run.ID()
	}
}

// finish releases the slot of a run, records the outcome, and frees its place.
func (r *runner) finish(s *settings, run *Run, outcome Outcome, err error) {
	took := time.Since(run.startedAt)
	logged := r.events.logsEnd(outcome)
	e := s.entry
	e.mu.Lock()
	abandoned := r.gaveUp.Load()
	run.over = true // the run gets no further slot
	if run.late {
		e.overdue.Add(-1)
	}
	e.endedAt.Store(int64(time.Since(programStart)))
	if run.unwatch != nil {
		run.unwatch()
	}
	run.maxRunTimer.Stop()
	if run.Degraded() {
		r.store.views.endDegraded(s)
	}
	lease := run.lease.Load()
	e.mu.Unlock()
	if lease != nil && !abandoned { // if Run no longer waits for the run, the slot is left to expire
		if outcome == OutcomeOK {
			lease.MarkSucceeded()
		}
		r.release(s, lease)
	}
	// After the release, because Update or a timer that takes the name may have changed the
	// settings in the meantime.
	now := e.settings.Load()
	if delay, fixed := now.delay(); fixed {
		r.waiting.moveNext(now, delay)
	}
	if logged {
		r.events.logEnd(run, outcome, took, err)
	}
	// Lock both. Otherwise the run could be seen as ended while its place is still taken.
	r.registry.mu.Lock()
	e.mu.Lock()
	e.runs[run.place] = nil
	r.ledger.ended(&e.record, run, outcome, took, run.late, err)
	if r.store != nil {
		r.store.views.slotFree(s)
	}
	r.countReleased(run)
	r.limits.leave(s)
	r.registry.leaveLocked(s)
	e.mu.Unlock()
	r.registry.mu.Unlock()
	if !r.triggers.runEnded(s) {
		r.waiting.runEnded(s)
	}
	r.log.flush()
}

// countReleased records, once, that a run no longer holds its slot. The caller holds entry.mu.
func (r *runner) countReleased(run *Run) {
	if !run.holding {
		return
	}
	run.holding = false
	r.store.metrics.held(time.Since(run.lease.Load().AcquiredAt()))
}

// lost is called when the lease of a run ends.
func (r *runner) lost(s *settings, run *Run, lease *dlock.Lease) {
	err := lease.Err()
	lost, ok := errors.AsType[*dlock.LostError](err)
	if !ok {
		return // released, because the handler has returned
	}
	lostAt := run.now()
	goOn := lost.Silent && s.timer.OnStoreDown == StoreDownRunLocal && reasonOf(lost.Err) == ReasonStoreDown &&
		!r.store.notSetUp(s) // its last answer may have been that it is not set up correctly
	switch { // before waiting for a mutex
	case lost.RevokedBy != nil:
		r.cancel(run, &CanceledError{By: *lost.RevokedBy, Err: lost})
	case !goOn:
		run.ctx.lose(err)
	}
	defer r.log.flush()
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	if goOn && !run.over && !run.Degraded() {
		r.store.views.wentDown(s)
		run.degraded.Store(true)
		r.store.views.beginDegraded(s)
	}
	r.countReleased(run)
	if lost.RevokedBy != nil {
		return
	}
	r.ledger.count(&s.entry.record, func(t *tally) { t.leasesLost++ })
	r.events.leaseLost(run, lease, lostAt, goOn, lost)
}

// outOfTime is called at MaxRunTime, and at 1.5 × MaxRunTime.
func (r *runner) outOfTime(s *settings, run *Run) {
	defer r.log.flush()
	cause := run.ctx.cause()
	lost := cause != nil && !guard.Is(cause, ErrMaxRunTime) // without a mutex: it may be the store's error
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	switch {
	case run.over:
		return
	case run.late:
		r.overlong(s, run)
		return
	case lost:
		return // its context ended earlier, which was logged
	}
	if l := run.lease.Load(); l != nil {
		l.StopRenewing()
	}
	r.log.later(slog.LevelWarn,
		"timer: a run reached its MaxRunTime: its context has ended and its slot is no longer renewed",
		run.info().line("max_run_time", s.timer.MaxRunTime)...)
	run.late = true
	s.entry.overdue.Add(1)
	if run.tick != 0 {
		r.ledger.countOverdue(&s.entry.record)
	}
	run.maxRunTimer.Reset(s.timer.MaxRunTime / 2)
}

// overlong logs and counts a run that is past 1.5 × MaxRunTime. The caller holds entry.mu.
func (r *runner) overlong(s *settings, run *Run) {
	r.log.later(slog.LevelError,
		"timer: a run ignores its context: it is past 1.5 × MaxRunTime and keeps its place on this host until it "+
			"returns",
		run.info().line("running_for", time.Since(run.startedAt).Round(time.Millisecond))...)
	r.ledger.count(&s.entry.record, func(t *tally) { t.overlongHolds++ })
}

// isOver reports whether the handler of a run has returned.
func (r *runner) isOver(run *Run) bool {
	e := run.settings.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	return run.over
}

// counts returns how many runs of a timer are in progress on this host, and how many of them are
// past MaxRunTime and ignore their context.
func (r *runner) counts(s *settings) (runs, overdue int) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return s.entry.count((*Run).any), int(s.entry.overdue.Load())
}

// giveUp returns the names of the timers whose runs have not ended, once per run. Their slots are
// left to expire.
func (r *runner) giveUp() (stuck []string) {
	r.gaveUp.Store(true)
	for _, s := range r.registry.all() {
		runs, _ := r.counts(s)
		for range runs {
			stuck = append(stuck, s.timer.Name)
		}
		r.giveUpWaits(s)
	}
	slices.Sort(stuck)
	return stuck
}

// giveUpWaits ends the waits for the results of runs that have not ended.
func (r *runner) giveUpWaits(s *settings) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, run := range s.entry.runs {
		if run != nil && run.trigger != nil {
			run.trigger.handle.end(OutcomeDraining, ErrDraining, nil)
		}
	}
}

// release logs an error at Debug only. A lost lease was already logged, and the session repeats a
// release that was not answered.
func (r *runner) release(s *settings, lease *dlock.Lease) {
	if err := lease.Release(r.base); err != nil {
		r.log.Debug("timer: the slot was not released", "timer", s.timer.Name, "slot", lease.Slot(), "err", err)
	}
}

// place gives a run the lowest free place on this host. The caller holds entry.mu.
func (e *entry) place(r *Run) {
	r.place = int32(slices.Index(e.runs, nil))
	if r.place < 0 {
		r.place = int32(len(e.runs))
		e.runs = append(e.runs, nil)
	}
	e.runs[r.place] = r
}

// count returns the number of runs for which holds returns true. The caller holds entry.mu.
func (e *entry) count(holds func(*Run) bool) (n int) {
	for _, r := range e.runs {
		if r != nil && holds(r) {
			n++
		}
	}
	return n
}

// CancelRun cancels a run on this host. id is its Run.ID. The context of the run ends immediately,
// with a *CanceledError as its cause. The run is not retried, and its outcome is OutcomeCanceled,
// whatever the handler returns. The slot becomes free when the handler has returned, not before. A
// handler that ignores its context keeps running. If the run's context has already ended, CancelRun
// has no effect.
//
// CancelRun returns ErrNoTimer, or ErrNoRun if the run is not in progress on this host.
// control.Control.CancelRun cancels runs on other hosts.
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

// find returns the run with that ID, or nil if there is none.
func (r *runner) find(s *settings, id string) *Run {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, run := range s.entry.runs {
		if run != nil && !run.over && run.ID() == id {
			return run
		}
	}
	return nil
}

// cancel ends the context of a run, unless it has ended. The caller holds no mutex.
func (r *runner) cancel(run *Run, cause *CanceledError) {
	run.ctx.lose(cause)
	if run.ctx.cause() == error(cause) {
		r.log.Info("timer: run canceled",
			"timer", run.Timer(), "slot", run.Slot(), "run", run.ID(), "by", cause.By.By, "note", cause.By.Note)
	}
}
