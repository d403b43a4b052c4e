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

// Trigger starts a run on this host immediately, or refuses to. It never keeps a trigger for later;
// control.Control.Trigger does that for the fleet. Trigger returns once the run has started and
// Status shows it. Handle.Wait returns the result of the run. If no run starts, Trigger returns a
// *RefusedError with the reason, ErrNoTimer, ErrPayloadTooLong, or the cause of ctx.
//
// Any registered timer may be triggered at any time between Running and the drain. Its schedule,
// blackouts and MaxPerTick do not apply. MaxConcurrency, MaxPerHost, Limits, MaxRuns and pauses do.
// Trigger waits, until ctx ends, in two cases: if MaxRuns runs are in progress, as OnMaxRuns says;
// and for its turn, if 64 calls to the store are in flight. If the store does not answer,
// OnStoreDown applies, but Trigger calls the store even while its breaker is open. A setup error
// (ReasonStoreSetup) or a fault in a key (ReasonStoreFault) refuses the run. If Run has returned a
// setup error, so does Trigger.
//
// The context of the run has the values of ctx, such as a trace or a user. For keys without a value
// in ctx, it has the values of Run's context. It does not end with ctx.
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
		return s.tryTrigger(ctx, name, by) // with the settings of Update, or to return ErrNoTimer
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

// MaxPayloadLen is the maximum length of the payload of a triggered run, in bytes.
const MaxPayloadLen = fleet.MaxPayloadLen

// ErrPayloadTooLong is matched by the error for a payload of more than MaxPayloadLen bytes.
var ErrPayloadTooLong = fleet.ErrPayloadTooLong

// TriggerOptions are the options of Scheduler.Trigger. The zero value is valid.
type TriggerOptions struct {
	// Payload is what Run.Payload returns: any bytes. Trigger copies them. Nil and empty are the
	// same: Run.Payload returns nil. A payload longer than MaxPayloadLen (64 KiB) is refused with
	// ErrPayloadTooLong. Default: none.
	Payload []byte

	// By says who triggers the run, for Run.TriggeredBy, Status, hooks and the log. If it is set,
	// its By must not be empty. By and Note have at most 256 bytes each. Default: unknown.
	By driver.Cause
}

func (t TriggerOptions) check() error {
	err := fleet.CheckPayload(t.Payload)
	if t.By != (driver.Cause{}) {
		err = errors.Join(err, t.By.Validate())
	}
	return err
}

// A triggering is the state that only a triggered run has.
type triggering struct {
	payload []byte
	by      driver.Cause
	values  context.Context // the values of the caller's context, without its cancellation; nil if none
	handle  *Handle
}

func newTriggering(o TriggerOptions, values context.Context) *triggering {
	t := &triggering{by: o.By, values: values, handle: &Handle{done: make(chan struct{})}}
	if len(o.Payload) > 0 {
		t.payload = append(t.payload, o.Payload...)
	}
	return t
}

// A Handle lets a caller of Trigger wait for the run. Waiting is optional. The methods may be
// called from any goroutine.
type Handle struct {
	timer, id string
	done      chan struct{}

	mu     sync.Mutex
	over   bool
	result any
	err    *OutcomeError // nil if the run succeeded or is in progress
}

// ID returns the Run.ID of the run, which is the argument of CancelRun.
func (h *Handle) ID() string { return h.id }

// Done returns a channel that is closed when the run has ended, after its last attempt, when its
// slot is released and Status shows the end. If Run gives up on the handler (StuckError), the
// channel is closed at that moment.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Wait waits until the run has ended, and returns the value that its handler last passed to
// Run.SetResult, or nil. If the outcome is OutcomeOK, the error is nil. Otherwise the error is an
// *OutcomeError with the outcome, and Wait still returns the value that the run had set before.
//
// If ctx ends first, the run continues. The error is then the cause of ctx, not an *OutcomeError.
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
			return nil, fmt.Errorf("timer %q: run %s continues: %w", h.timer, h.id, context.Cause(ctx))
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

// end records the outcome once, because a handler that Run has given up on may still return later.
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

// An OutcomeError says why a triggered run did not end with OutcomeOK. errors.Is and errors.As
// match Err and Cause: ErrMaxRunTime, dlock.ErrLost, ErrCanceled, ErrDraining, a *PanicError, or
// the error that the handler returned.
type OutcomeError struct {
	Timer   string
	ID      string // the Run.ID
	Outcome Outcome
	Err     error // the last error of the handler, or a *PanicError; nil if it returned nil or has not returned
	Cause   error // why the context of the run ended, if that determined the outcome; otherwise nil
}

func (o *OutcomeError) Error() string {
	text, last := fmt.Sprintf("timer %q: run %s: %s", o.Timer, o.ID, o.Outcome), ""
	for _, err := range o.Unwrap() {
		if more := fmt.Sprintf(": %v", err); more != last { // a handler often returns the cause
			text, last = text+more, more // fmt recovers if Error panics
		}
	}
	return text
}

// Unwrap returns Cause and Err, omitting nil.
func (o *OutcomeError) Unwrap() (errs []error) {
	for _, err := range []error{o.Cause, o.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Payload returns the payload of the trigger, or nil if it has none. All attempts get the same
// bytes, so do not modify them.
func (r *Run) Payload() []byte {
	if r == nil || r.trigger == nil {
		return nil
	}
	return r.trigger.payload
}

// SetResult sets the value that Handle.Wait returns. The last call in any attempt counts. Calls
// after the end of the run have no effect. If the run was not triggered on this host, the result is
// dropped.
func (r *Run) SetResult(result any) {
	if r != nil && r.trigger != nil {
		r.trigger.handle.set(result)
	}
}

// Result returns the value that was last passed to SetResult. It returns nil if there is none, or
// if the run was not triggered. It is meant for middleware, and for unit tests of handlers.
func (r *Run) Result() any {
	if r == nil || r.trigger == nil {
		return nil
	}
	return r.trigger.handle.get()
}
