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
	timer    string
	tick     time.Time
	lease    atomic.Pointer[dlock.Lease] // the latest; nil: it never had one
	ctx      context.Context
	cancel   context.CancelCauseFunc
	started  time.Time
	degraded atomic.Bool
	attempt  atomic.Int32

	number int // of this host's own, for a run that needs no store; else -1

	// Guarded by Scheduler.mu.
	over     bool        // the handler has returned
	holding  bool        // counted as a slot held
	unwatch  func() bool // the lease
	overlong *time.Timer // goes off at 1.5 × MaxRunTime; nil before MaxRunTime
	retrying *retrying   // nil before the first retry
}

type runKey struct{}

// RunFromContext returns the run that a handler was called for. ok is false outside a run.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// Timer is the name of the timer.
func (r *Run) Timer() string { return r.timer }

// Tick is the scheduled instant, the same on every host; the zero time if the run was triggered.
func (r *Run) Tick() time.Time { return r.tick }

// Slot is which of the timer's slots the run holds: no other valid run has the same. A run of a timer that keeps to
// one host gets a number of that host's own. -1 for a run that started without the store; when the store is back, such
// a run gets a slot if one is free.
func (r *Run) Slot() int {
	if l := r.lease.Load(); l != nil {
		return l.Slot()
	}
	return r.number
}

// Fence grows with every run of the slot: a resource that remembers the highest fence it has seen of each
// slot can refuse a run that has lost its lease. 0 for a run without a lease in the store.
func (r *Run) Fence() dlock.Fence {
	if l := r.lease.Load(); l != nil {
		return l.Fence()
	}
	return 0
}

// Degraded reports whether the run goes on without the store: it started while that did not answer,
// or its lease could no longer be renewed. See RunLocal. It ends when the run gets a slot after the outage.
func (r *Run) Degraded() bool { return r.degraded.Load() }

// Valid reports whether the run's slot is its own at this instant. It costs about a microsecond, so ask before each
// step that must not be done twice. A run of a timer that keeps to one host is valid until its context ends.
func (r *Run) Valid() bool {
	if r.Degraded() {
		return false
	}
	if l := r.lease.Load(); l != nil {
		return l.Valid()
	}
	return r.ctx.Err() == nil
}

// Attempt is how often the handler has been called in this run, this call included: more than 1 is a retry. See Retry.
func (r *Run) Attempt() int { return int(r.attempt.Load()) }

// An Outcome is how a run ended.
type Outcome string

const (
	OK        Outcome = "ok"
	Failed    Outcome = "error"
	Panicked  Outcome = "panic"
	TimedOut  Outcome = "timeout"    // it reached MaxRunTime
	LeaseLost Outcome = "lease_lost" // its lease was lost
	Canceled  Outcome = "canceled"   // draining took too long
)

// run calls the handler and cleans up after it. The caller has taken a place for it.
func (s *Scheduler) run(e *entry, tick int64, lease *dlock.Lease, degraded bool) {
	r := &Run{timer: e.timer.Name, number: -1, started: time.Now()}
	if tick != 0 {
		r.tick = time.UnixMicro(tick).UTC()
	}
	r.degraded.Store(degraded)
	ctx, cancel := context.WithCancelCause(context.WithValue(s.base, runKey{}, r))
	ctx, stopClock := context.WithTimeoutCause(ctx, e.timer.MaxRunTime, ErrMaxRunTime)
	r.ctx, r.cancel = ctx, cancel
	s.begin(e, r, tick, lease)
	unreport := context.AfterFunc(ctx, func() { s.ended(ctx, e, r) })

	// The clean-up is deferred: a handler may call runtime.Goexit, as t.FailNow does.
	err, panicked := errGoexit, false
	defer func() {
		unreport()
		outcome := outcomeOf(ctx, err, panicked)
		stopClock()
		cancel(nil)
		s.finish(e, r, outcome, unmarked(err))
	}()
	r.attempt.Store(1)
	for retry := true; retry; retry = s.again(ctx, e, r, err) {
		err, panicked = errGoexit, false
		err, panicked = call(ctx, e.timer.Run)
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

// begin enters the run into the books.
func (s *Scheduler) begin(e *entry, r *Run, tick int64, lease *dlock.Lease) {
	s.lock()
	defer s.unlock()
	d := e.more()
	if d.runs == nil {
		d.runs = make(map[*Run]struct{})
	}
	d.runs[r] = struct{}{}
	switch {
	case lease != nil:
		s.hold(e, r, lease)
	case !r.Degraded():
		r.number = d.takeNumber()
	default:
		s.goOnWithout(e, r)
	}
	if tick != 0 {
		d.started++
		d.ranLast = d.ticks
		d.history.add(decision{tick: tick, run: r})
	}
	if m := s.metricsOf(e); m != nil {
		m.started(e.timer.Name, r)
	}
}

// finish takes the run out of the books, after its slot has been given back.
func (s *Scheduler) finish(e *entry, r *Run, outcome Outcome, err error) {
	took := time.Since(r.started)
	s.lock()
	given := s.given
	d := e.more()
	r.over = true // from here on it is given no slot
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.overlong != nil {
		r.overlong.Stop()
		s.showOverdue(e)
	}
	if r.Degraded() {
		s.goesOnNoMore(e)
	}
	s.unlock()
	lease := r.lease.Load()
	if lease != nil && !given { // after Run has given up on it, the slot is left to expire
		if outcome == OK {
			lease.Succeeded()
		}
		s.release(e, lease)
	}
	switch outcome {
	case OK:
		s.log.Debug("timer: run ended", "timer", e.timer.Name, "took", took)
	case LeaseLost, TimedOut, Canceled: // told when it happened
		s.log.Info("timer: run ended", "timer", e.timer.Name, "outcome", string(outcome), "slot", r.Slot(), "took", took, "err", err)
	case Panicked:
		s.log.Error("timer: run panicked", "timer", e.timer.Name, "slot", r.Slot(), "took", took, "err", err, "stack", string(err.(*PanicError).Stack))
	default:
		s.log.Error("timer: run failed", "timer", e.timer.Name, "outcome", string(outcome), "slot", r.Slot(), "attempts", r.Attempt(), "took", took, "err", err)
	}
	s.lock()
	defer s.unlock()
	delete(d.runs, r)
	if r.number >= 0 {
		d.local[r.number] = false
	}
	if outcome == OK {
		d.silence.succeeded(time.Now())
		if m := s.metricsOf(e); m != nil {
			m.succeeded(e.timer.Name, d.silence.success)
		}
	}
	d.last = &RunResult{Tick: r.tick, Started: r.started, Took: took, Outcome: outcome, Attempts: r.Attempt(), Err: err}
	d.full = fullAnswer{} // a slot is free
	if !r.tick.IsZero() {
		if c := d.history.find(r.tick.UnixMicro()); c != nil && c.run == r {
			c.result, c.slot, c.run = d.last, r.Slot(), nil // the ring must not keep its contexts alive
		}
	}
	s.letGo(e, r)
	if m := s.metricsOf(e); m != nil {
		m.finished(e.timer.Name, outcome, took)
	}
	s.leave(e)
}

// letGo counts a slot as no longer held, once. Called with mu held.
func (s *Scheduler) letGo(e *entry, r *Run) {
	if !r.holding {
		return
	}
	r.holding = false
	if m := s.metricsOf(e); m != nil {
		m.letGo(e.timer.Name, time.Since(r.lease.Load().Since()))
	}
}

// takeNumber returns the lowest number that no other run of this host has.
func (d *detail) takeNumber() int {
	i := slices.Index(d.local, false)
	if i < 0 {
		i = len(d.local)
		d.local = append(d.local, false)
	}
	d.local[i] = true
	return i
}

// goOnWithout counts a run that goes on without the store. Called with mu held.
func (s *Scheduler) goOnWithout(e *entry, r *Run) {
	r.degraded.Store(true)
	e.more().degraded++
	s.degraded++
	s.showFallback(e)
}

// goesOnNoMore counts one run less that goes on without the store. Called with mu held.
func (s *Scheduler) goesOnNoMore(e *entry) {
	e.more().degraded--
	s.degraded--
	s.showFallback(e)
}

// lost is called when the lease of a run ends before the run does.
func (s *Scheduler) lost(e *entry, r *Run, lease *dlock.Lease) {
	err := lease.Err()
	lost, ok := errors.AsType[*dlock.LostError](err)
	if !ok {
		return // released: the handler has returned
	}
	goOn := lost.Silent && e.timer.OnStoreDown == RunLocal
	if !goOn {
		r.cancel(err) // first of all
	}
	s.lock()
	defer s.unlock()
	if goOn && !r.over && !r.Degraded() {
		e.more().storeDown = true
		s.goOnWithout(e, r)
	}
	s.letGo(e, r)
	if m := s.metricsOf(e); m != nil {
		m.lost(e.timer.Name)
	}
	s.say(slog.LevelWarn, "timer: lease lost", "timer", e.timer.Name, "slot", lease.Slot(), "goes_on", goOn, "err", err)
}

// ended is called when a run's context ends before its handler has returned.
func (s *Scheduler) ended(ctx context.Context, e *entry, r *Run) {
	if !errors.Is(context.Cause(ctx), ErrMaxRunTime) {
		return
	}
	s.lock()
	defer s.unlock()
	if l := r.lease.Load(); l != nil {
		l.StopRenewing()
	}
	if r.over {
		return
	}
	s.say(slog.LevelWarn, "timer: a run reached its MaxRunTime: its context has ended and its slot is no longer renewed",
		"timer", e.timer.Name, "slot", r.Slot(), "max_run_time", e.timer.MaxRunTime)
	r.overlong = time.AfterFunc(e.timer.MaxRunTime/2, func() { s.overlong(e, r) })
	s.showOverdue(e)
}

// overlong is called at 1.5 × MaxRunTime.
func (s *Scheduler) overlong(e *entry, r *Run) {
	s.lock()
	defer s.unlock()
	if r.over {
		return
	}
	s.say(slog.LevelError, "timer: a run ignores its context: it goes on beyond 1.5 × MaxRunTime and keeps its place on this host until it returns",
		"timer", e.timer.Name, "slot", r.Slot(), "running_for", time.Since(r.started).Round(time.Millisecond))
	if m := s.metricsOf(e); m != nil {
		m.overlong(e.timer.Name)
	}
}

// outcomeOf looks into our own errors only: those of a handler may panic when they are looked into.
func outcomeOf(ctx context.Context, err error, panicked bool) Outcome {
	if panicked {
		return Panicked
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, dlock.ErrLost):
		return LeaseLost
	case errors.Is(cause, ErrMaxRunTime):
		return TimedOut
	case err == nil:
		return OK
	case errors.Is(cause, ErrDraining):
		return Canceled
	default:
		return Failed
	}
}
