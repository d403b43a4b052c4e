package timer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// Trigger starts a run on this host now, or refuses it. It never keeps a trigger for later;
// control.Control.Trigger does that, for the fleet. It returns once the run has started and Status
// shows it; Handle.Wait returns the result of the run. Otherwise it returns a *RefusedError with
// the reason, ErrNoTimer, ErrPayloadTooLong, or the cause of ctx.
//
// Any registered timer may be triggered at any time between Running and the drain: its schedule,
// blackouts and MaxPerTick do not matter. MaxConcurrency, MaxPerHost, Limits, MaxRuns and pauses
// apply. Trigger waits, until ctx ends, in two cases: if MaxRuns runs are in progress, as OnMaxRuns
// decides; and for its turn, if 64 calls to the store are in flight. If the store does not answer,
// OnStoreDown applies; but Trigger calls the store even while its breaker is open. A set-up fault
// (ReasonStoreSetup) or a fault of a key (ReasonStoreFault) refuses the run. If Run has returned a
// set-up fault, so does Trigger.
//
// The context of the run has the values of ctx, such as a trace or a user, and those of Run's
// context where ctx has none. It does not end with ctx.
func (s *Scheduler) Trigger(ctx context.Context, name string, options TriggerOptions) (*Handle, error) {
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
		if fault := s.registry.notSetUp.Load(); fault != nil { // this is why the host drains, or does not run
			reason, err = ReasonStoreSetup, *fault
		}
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
		return s.tryTrigger(ctx, name, by) // with the settings of Update, or the timer is unknown now
	case why == ReasonMaxRuns && !s.registry.starting():
		return refuse(ReasonDraining, nil)
	case why == ReasonMaxRuns && ctx.Err() != nil:
		return fmt.Errorf("timer %q: not triggered, MaxRuns (%d) runs were active: %w", name, s.config.MaxRuns,
			context.Cause(ctx))
	case why != "":
		return refuse(why, err)
	}
	if !set.shared() {
		if why, full := s.limits.enter(set, false); full != nil {
			s.registry.leave(set)
			return refuse(why, full)
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

// newTriggers returns the part that starts the runs triggered by a Control.
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
			if _, full := s.waiting.queued(); full {
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

// MaxPayloadLen is the longest payload of a triggered run, in bytes.
const MaxPayloadLen = fleet.MaxPayloadLen

// ErrPayloadTooLong is matched by the error for a payload of more than MaxPayloadLen bytes.
var ErrPayloadTooLong = fleet.ErrPayloadTooLong

// TriggerOptions are what Scheduler.Trigger gives a run. The zero value gives it nothing.
type TriggerOptions struct {
	// Payload is what Run.Payload returns: any bytes, which are copied. Nil and empty are the same:
	// Run.Payload returns nil. At most MaxPayloadLen (64 KiB); a longer one is refused with
	// ErrPayloadTooLong. Default: none.
	Payload []byte

	// By is who triggers the run, for Run.TriggeredBy, Status, hooks and the log. If it is set, its
	// By must not be empty; By and Note have at most 256 bytes each. Default: nobody in particular.
	By driver.Cause
}

// check returns what is wrong with the options.
func (t TriggerOptions) check() error {
	err := fleet.CheckPayload(t.Payload)
	if t.By != (driver.Cause{}) {
		err = errors.Join(err, t.By.Validate())
	}
	return err
}

// A triggering is what only a triggered run has.
type triggering struct {
	payload []byte
	by      driver.Cause
	values  context.Context // of the caller, without its end; nil: none
	handle  *Handle
}

func newTriggering(o TriggerOptions, values context.Context) *triggering {
	t := &triggering{by: o.By, values: values, handle: &Handle{done: make(chan struct{})}}
	if len(o.Payload) > 0 {
		t.payload = append(t.payload, o.Payload...)
	}
	return t
}

// A Handle lets a caller of Trigger wait for the run that it started. Waiting is optional. Its
// methods may be called from any goroutine.
type Handle struct {
	timer, id string
	done      chan struct{}

	mu     sync.Mutex
	over   bool
	result any
	err    *OutcomeError // nil: it succeeded, or is in progress
}

// ID is the Run.ID of the run, which CancelRun takes.
func (h *Handle) ID() string { return h.id }

// Done returns a channel that is closed when the run has ended: after its last attempt, when its
// slot is released and Status shows the end. If Run gives up on the handler (StuckError), it is
// closed then.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Wait waits until the run has ended, and returns what its handler passed to Run.SetResult last, or
// nil. If the outcome is OutcomeOK, the error is nil. Otherwise it is an *OutcomeError with the
// outcome, and Wait still returns what the run had set before.
//
// If ctx ends first, the run continues, and the error is the cause of ctx, not an *OutcomeError.
func (h *Handle) Wait(ctx context.Context) (result any, err error) {
	if ctx == nil {
		return nil, errNilContext
	}
	select {
	case <-h.done:
	default:
		select {
		case <-h.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("timer %q: run %s goes on: %w", h.timer, h.id, context.Cause(ctx))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.result, h.err
	}
	return h.result, nil
}

func (h *Handle) set(result any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.result = result
	}
}

func (h *Handle) get() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.result
}

// end records the outcome, once, because a handler that was given up on may return later.
func (h *Handle) end(outcome Outcome, cause, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	h.over = true
	if outcome != OutcomeOK {
		h.err = &OutcomeError{Timer: h.timer, ID: h.id, Outcome: outcome, Err: err}
		switch outcome {
		case OutcomeLeaseLost, OutcomeTimedOut, OutcomeCanceled, OutcomeDraining:
			h.err.Cause = cause
		}
	}
	close(h.done)
}

// An OutcomeError says why a triggered run did not end with OutcomeOK. errors.Is and errors.As see
// Err and Cause: ErrMaxRunTime, dlock.ErrLost, ErrCanceled, ErrDraining, a *PanicError, or what the
// handler returned.
type OutcomeError struct {
	Timer   string
	ID      string // Run.ID
	Outcome Outcome
	Err     error // what the handler returned last, or a *PanicError; nil: it returned nil, or has not returned
	Cause   error // why the context of the run ended, if that decided the outcome; otherwise nil
}

func (o *OutcomeError) Error() string {
	text, last := fmt.Sprintf("timer %q: run %s: %s", o.Timer, o.ID, o.Outcome), ""
	for _, err := range o.Unwrap() {
		if more := fmt.Sprintf(": %v", err); more != last { // a handler often returns the cause
			text, last = text+more, more // fmt survives an Error that panics
		}
	}
	return text
}

// Unwrap returns Cause and Err, without those that are nil.
func (o *OutcomeError) Unwrap() (errs []error) {
	for _, err := range []error{o.Cause, o.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Payload returns the payload of the trigger; nil: it has none. All attempts get the same bytes: do
// not change them.
func (r *Run) Payload() []byte {
	if r == nil || r.trigger == nil {
		return nil
	}
	return r.trigger.payload
}

// SetResult sets what Handle.Wait returns. The last call counts, in any attempt; calls after the
// end of the run have no effect. If the run was not triggered on this host, the result is dropped.
func (r *Run) SetResult(result any) {
	if r != nil && r.trigger != nil {
		r.trigger.handle.set(result)
	}
}

// Result returns what was last passed to SetResult; nil: nothing, or the run was not triggered. It
// is for middleware, and for unit tests of handlers.
func (r *Run) Result() any {
	if r == nil || r.trigger == nil {
		return nil
	}
	return r.trigger.handle.get()
}
