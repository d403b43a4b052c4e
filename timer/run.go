package timer

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A Run is one call of a handler, as the handler sees it.
type Run struct {
	entry    *entry
	tick     int64                       // µs; 0: none, it was triggered
	lease    atomic.Pointer[dlock.Lease] // the latest; nil: it never had one
	ctx      context.Context             // of the handler; ends with MaxRunTime, with the lease, and with draining
	cancel   context.CancelCauseFunc     // ends ctx, as that of a run that lost its lease
	stop     context.CancelFunc          // ends ctx, and frees its timer
	started  time.Time
	degraded atomic.Bool
	local    bool // it needs no store
	attempt  atomic.Int32

	// Guarded by Scheduler.mu.
	place    int         // on this host
	over     bool        // the handler has returned
	late     bool        // it was not over at MaxRunTime
	holding  bool        // counted as a slot held
	unwatch  func() bool // the lease
	clock    *time.Timer // goes off at MaxRunTime, and at 1.5 × MaxRunTime
	retrying *retrying   // nil before the first retry
}

type runKey struct{}

// RunFromContext returns the run that a handler was called for. ok is false outside a run.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// Timer is the name of the timer.
func (r *Run) Timer() string { return r.entry.timer.Name }

// Tick is the scheduled instant, the same on every host; the zero time if the run was triggered.
func (r *Run) Tick() (tick time.Time) {
	if r.tick != 0 {
		tick = time.UnixMicro(r.tick).UTC()
	}
	return tick
}

// ends is when it reaches MaxRunTime.
func (r *Run) ends() time.Time { return r.started.Add(r.entry.timer.MaxRunTime) }

// Slot is which of the timer's slots the run holds: no other valid run has the same. A run of a
// timer that keeps to one host gets a number of that host's own. -1 for a run that started without
// the store; when the store is back, such a run gets a slot if one is free.
func (r *Run) Slot() int {
	if l := r.lease.Load(); l != nil {
		return l.Slot()
	}
	if r.local {
		return r.place
	}
	return -1
}

// Fence grows with every run of the slot: a resource that remembers the highest fence it has seen
// of each slot can refuse a run that has lost its lease. 0 for a run without a lease in the store.
func (r *Run) Fence() dlock.Fence {
	if l := r.lease.Load(); l != nil {
		return l.Fence()
	}
	return 0
}

// Degraded reports whether the run goes on without the store: it started while that did not answer,
// or its lease could no longer be renewed. See StoreDownRunLocal. It ends when the run gets a slot
// after the outage.
func (r *Run) Degraded() bool { return r.degraded.Load() }

// Valid reports whether the run's slot is its own at this instant. It costs about a microsecond, so
// ask before each step that must not be done twice. A run of a timer that keeps to one host is
// valid until its context ends.
func (r *Run) Valid() bool {
	if r.Degraded() {
		return false
	}
	if l := r.lease.Load(); l != nil {
		return l.Valid()
	}
	return context.Cause(r.ctx) == nil
}

// Attempt is how often the handler has been called in this run, this call included: more than 1 is
// a retry. See Retry.
func (r *Run) Attempt() int { return int(r.attempt.Load()) }

// An Outcome is how a run ended.
type Outcome string

const (
	OutcomeOK        Outcome = "ok"
	OutcomeFailed    Outcome = "error"
	OutcomePanicked  Outcome = "panic"
	OutcomeTimedOut  Outcome = "timeout"    // it reached MaxRunTime
	OutcomeLeaseLost Outcome = "lease_lost" // its lease was lost
	OutcomeCanceled  Outcome = "canceled"   // draining took too long
)

// run begins a run and carries it out. The caller has taken a place for it.
func (s *Scheduler) run(e *entry, tick int64, lease *dlock.Lease, degraded bool) {
	s.lock()
	r := s.begun(e, tick, lease, degraded)
	s.unlock()
	s.carryOut(r)
}

// begun returns a run that is in the books. The caller has taken a place for it, and carries it
// out. Called with mu held.
func (s *Scheduler) begun(e *entry, tick int64, lease *dlock.Lease, degraded bool) *Run {
	r := s.newRun(e, tick, lease == nil && !degraded)
	s.begin(e, r, lease)
	return r
}

// A start is a run that needs no store and is to begin. The caller has taken a place for it.
type start struct {
	e    *entry
	tick int64
	run  *Run // nil: not yet made
}

// runAll begins runs, and carries each out in a goroutine. It takes the books but once, and the
// scheduling goroutine has to start one goroutine instead of many.
func (s *Scheduler) runAll(starts []start) {
	for i := range starts {
		starts[i].run = s.newRun(starts[i].e, starts[i].tick, true)
	}
	s.lock()
	for _, b := range starts {
		s.begin(b.e, b.run, nil)
	}
	s.unlock()
	last := len(starts) - 1
	for _, b := range starts[:last] {
		go s.carryOut(b.run)
	}
	s.carryOut(starts[last].run)
}

func (s *Scheduler) newRun(e *entry, tick int64, local bool) *Run {
	r := &Run{entry: e, tick: tick, started: time.Now(), local: local}
	var ctx context.Context
	ctx, r.cancel = context.WithCancelCause(context.WithValue(s.base, runKey{}, r))
	r.ctx, r.stop = context.WithDeadlineCause(ctx, r.ends(), ErrMaxRunTime)
	return r
}

// end ends the context of a run that is over, which frees what it has with the context of all runs.
func (r *Run) end() {
	r.stop()
	r.cancel(nil)
}

// carryOut calls the handler and cleans up after it.
func (s *Scheduler) carryOut(r *Run) {
	e := r.entry
	// The clean-up is deferred: a handler may call runtime.Goexit, as t.FailNow does.
	err, panicked := errGoexit, false
	defer func() {
		outcome := outcomeOf(r.ctx, err, panicked)
		r.end()
		s.finish(e, r, outcome, unmarked(err))
	}()
	r.attempt.Store(1)
	for retry := true; retry; retry = s.again(e, r, err) {
		err, panicked = errGoexit, false
		err, panicked = call(r.ctx, e.timer.Run)
	}
}

// call turns a panic into an error.
func call(ctx context.Context, handler func(context.Context) error) (err error, panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			err, panicked = &PanicError{Value: p, Stack: debug.Stack()}, true
		}
	}()
	return handler(ctx), false
}

// begin enters the run into the books. Called with mu held.
func (s *Scheduler) begin(e *entry, r *Run, lease *dlock.Lease) {
	d := e.state
	d.place(r)
	r.clock = time.AfterFunc(time.Until(r.ends()), func() { s.outOfTime(e, r) })
	switch {
	case lease != nil:
		s.hold(e, r, lease)
	case !r.local:
		r.degraded.Store(true)
		s.store.views.beginDegraded(e)
		s.store.ranWithout()
	}
	s.ledger.began(&e.state.record, r)
}

// finish takes the run out of the books, after its slot has been given back.
func (s *Scheduler) finish(e *entry, r *Run, outcome Outcome, err error) {
	took := time.Since(r.started)
	told := outcome != OutcomeOK || s.log.Enabled(s.base, slog.LevelDebug)
	s.lock()
	given := s.given
	d := e.state
	r.over = true // from here on it is given no slot
	if r.unwatch != nil {
		r.unwatch()
	}
	r.clock.Stop()
	if r.Degraded() {
		s.store.views.endDegraded(e)
	}
	lease := r.lease.Load()
	if told || lease != nil {
		s.unlock()
		if lease != nil && !given { // after Run has given up on it, the slot is left to expire
			if outcome == OutcomeOK {
				lease.MarkSucceeded()
			}
			s.release(e, lease)
		}
		if told {
			s.tellEnd(e, r, outcome, took, err)
		}
		s.lock()
	}
	d.runs[r.place] = nil
	s.ledger.ended(&d.record, r, outcome, took, r.late, err)
	if s.store != nil {
		s.store.views.slotFree(e)
	}
	s.letGo(e, r)
	s.registry.leave(e)
	s.unlock()
}

// tellEnd is not a part of finish, because its many arguments would make a stack grow that has done
// without.
func (s *Scheduler) tellEnd(e *entry, r *Run, outcome Outcome, took time.Duration, err error) {
	switch outcome {
	case OutcomeOK:
		s.log.Debug("timer: run ended", "timer", e.timer.Name, "took", took)
	case OutcomeLeaseLost: // told when it happened, or of too many to tell
		s.lock()
		s.log.laterFew(&s.endings, slog.LevelInfo, "timer: run ended", "timer", e.timer.Name, "outcome", string(outcome), "slot", r.Slot(), "took", took, "err", err)
		s.unlock()
	case OutcomeTimedOut, OutcomeCanceled: // told when it happened
		s.log.Info("timer: run ended", "timer", e.timer.Name, "outcome", string(outcome), "slot", r.Slot(), "took", took, "err", err)
	case OutcomePanicked:
		s.log.Error("timer: run panicked", "timer", e.timer.Name, "slot", r.Slot(), "took", took, "err", err, "stack", string(err.(*PanicError).Stack))
	default:
		s.log.Error("timer: run failed", "timer", e.timer.Name, "outcome", string(outcome), "slot", r.Slot(), "attempts", r.Attempt(), "took", took, "err", err)
	}
}

// letGo counts a slot as no longer held, once. Called with mu held.
func (s *Scheduler) letGo(e *entry, r *Run) {
	if !r.holding {
		return
	}
	r.holding = false
	held := time.Since(r.lease.Load().Since())
	s.ledger.count(&e.state.record, func(t *tally) { t.ofStore().held.observe(runBounds, held) })
}

// place gives a run the lowest place that no other run of this host has.
func (d *state) place(r *Run) {
	r.place = slices.Index(d.runs, nil)
	if r.place < 0 {
		r.place = len(d.runs)
		d.runs = append(d.runs, nil)
	}
	d.runs[r.place] = r
}

// count counts the runs of which something holds. Called with mu held.
func (d *state) count(holds func(*Run) bool) (n int) {
	for _, r := range d.runs {
		if r != nil && holds(r) {
			n++
		}
	}
	return n
}

func (r *Run) any() bool     { return true }
func (r *Run) overdue() bool { return r.late && !r.over }
func (r *Run) holds() bool   { return r.holding }

// lost is called when the lease of a run ends before the run does.
func (s *Scheduler) lost(e *entry, r *Run, lease *dlock.Lease) {
	err := lease.Err()
	lost, ok := errors.AsType[*dlock.LostError](err)
	if !ok {
		return // released: the handler has returned
	}
	goOn := lost.Silent && e.timer.OnStoreDown == StoreDownRunLocal && reasonOf(lost.Err) == ReasonStoreDown
	if !goOn {
		r.cancel(err) // first of all
	}
	s.lock()
	defer s.unlock()
	if goOn && s.store.notSetUp(e) { // it fell silent after it had said that it is not set up right
		goOn = false
		r.cancel(err)
	}
	if goOn && !r.over && !r.Degraded() {
		s.store.views.wentDown(e)
		r.degraded.Store(true)
		s.store.views.beginDegraded(e)
	}
	s.letGo(e, r)
	s.ledger.count(&e.state.record, func(t *tally) { t.leasesLost++ })
	tell := &few{} // one that is lost by itself is told in any case
	if lost.Silent {
		tell = &s.losses
	}
	s.log.laterFew(tell, slog.LevelWarn, "timer: lease lost", "timer", e.timer.Name, "slot", lease.Slot(), "goes_on", goOn, "err", err)
}

// outOfTime is called at MaxRunTime, and at 1.5 × MaxRunTime.
func (s *Scheduler) outOfTime(e *entry, r *Run) {
	s.lock()
	defer s.unlock()
	if r.over {
		return
	}
	if r.late {
		s.overlong(e, r)
		return
	}
	if cause := context.Cause(r.ctx); cause != nil && !errors.Is(cause, ErrMaxRunTime) {
		return // it ended before, and that was told
	}
	if l := r.lease.Load(); l != nil {
		l.StopRenewing()
	}
	s.log.later(slog.LevelWarn, "timer: a run reached its MaxRunTime: its context has ended and its slot is no longer renewed",
		"timer", e.timer.Name, "slot", r.Slot(), "max_run_time", e.timer.MaxRunTime)
	r.late = true
	if r.tick != 0 {
		s.ledger.overdue(&e.state.record)
	}
	r.clock.Reset(e.timer.MaxRunTime / 2)
}

// overlong is called with mu held.
func (s *Scheduler) overlong(e *entry, r *Run) {
	s.log.later(slog.LevelError, "timer: a run ignores its context: it goes on beyond 1.5 × MaxRunTime and keeps its place on this host until it returns",
		"timer", e.timer.Name, "slot", r.Slot(), "running_for", time.Since(r.started).Round(time.Millisecond))
	s.ledger.count(&e.state.record, func(t *tally) { t.overlongHolds++ })
}

// outcomeOf looks into our own errors only: those of a handler may panic when they are looked into.
func outcomeOf(ctx context.Context, err error, panicked bool) Outcome {
	if panicked {
		return OutcomePanicked
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, dlock.ErrLost):
		return OutcomeLeaseLost
	case errors.Is(cause, ErrMaxRunTime):
		return OutcomeTimedOut
	case err == nil:
		return OutcomeOK
	case errors.Is(cause, ErrDraining):
		return OutcomeCanceled
	default:
		return OutcomeFailed
	}
}
