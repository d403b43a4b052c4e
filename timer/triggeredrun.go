package timer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// MaxPayloadLen is the longest payload of a triggered run, in bytes.
const MaxPayloadLen = fleet.MaxPayloadLen

// ErrPayloadTooLong is matched by the error for a payload of more than MaxPayloadLen bytes.
var ErrPayloadTooLong = fleet.ErrPayloadTooLong

// TriggerOptions are what Scheduler.Trigger gives a run. The zero value gives it nothing.
type TriggerOptions struct {
	// Payload is what Run.Payload returns: any bytes, up to MaxPayloadLen, which are copied. A
	// longer one is refused with ErrPayloadTooLong. Nil and empty are the same: Run.Payload returns
	// nil.
	Payload []byte

	// By is who triggers the run, for Run.TriggeredBy, Status, hooks and the log.
	By dlock.Origin
}

// check returns what is wrong with the options.
func (o TriggerOptions) check() error {
	err := fleet.CheckPayload(o.Payload)
	if o.By != (dlock.Origin{}) {
		err = errors.Join(err, o.By.Validate())
	}
	return err
}

// A triggering is what only a triggered run has.
type triggering struct {
	payload []byte
	by      dlock.Origin
	values  context.Context // of the caller, without its end; nil: it has none
	handle  *TriggeredRun
}

func newTriggering(o TriggerOptions, values context.Context) *triggering {
	t := &triggering{by: o.By, values: values, handle: &TriggeredRun{done: make(chan struct{})}}
	if len(o.Payload) > 0 {
		t.payload = append(t.payload, o.Payload...)
	}
	return t
}

// A TriggeredRun is a run that Trigger has started on this host. Nobody has to wait for it. Its
// methods may be called from any goroutine.
type TriggeredRun struct {
	timer, id string
	done      chan struct{}

	mu     sync.Mutex
	over   bool
	result any
	err    *RunError // nil: it succeeded, or goes on
}

// ID is the Run.ID of the run, which CancelRun takes.
func (t *TriggeredRun) ID() string { return t.id }

// Done returns a channel that is closed when the run has ended: after its last attempt, when its
// slot is released and Status shows the end. If Run gives up on the handler (StuckError), it is
// closed then.
func (t *TriggeredRun) Done() <-chan struct{} { return t.done }

// Wait waits until the run has ended, and returns what its handler passed to Run.SetResult last, or
// nil. The error is nil only if the outcome is OutcomeOK. Otherwise it is a *RunError with the
// outcome; what the run had set before is returned beside it.
//
// If ctx ends first, the run goes on, and the error is the cause of ctx and no *RunError.
func (t *TriggeredRun) Wait(ctx context.Context) (result any, err error) {
	if ctx == nil {
		return nil, errNilContext
	}
	select {
	case <-t.done:
	default:
		select {
		case <-t.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("timer %q: run %s goes on: %w", t.timer, t.id, context.Cause(ctx))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.result, t.err
	}
	return t.result, nil
}

func (t *TriggeredRun) set(result any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.result = result
	}
}

func (t *TriggeredRun) get() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result
}

// end records the outcome, once: a handler that was given up on may return later.
func (t *TriggeredRun) end(outcome Outcome, cause, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	if outcome != OutcomeOK {
		t.err = &RunError{Timer: t.timer, ID: t.id, Outcome: outcome, Err: err}
		switch outcome {
		case OutcomeLeaseLost, OutcomeTimedOut, OutcomeCanceled, OutcomeDraining:
			t.err.Cause = cause
		}
	}
	close(t.done)
}

// A RunError says why a triggered run did not end with OutcomeOK. errors.Is and errors.As see Err
// and Cause: ErrMaxRunTime, dlock.ErrLost, ErrCanceled, ErrDraining, a *PanicError, or what the
// handler returned.
type RunError struct {
	Timer   string
	ID      string // Run.ID
	Outcome Outcome
	Err     error // what the handler returned last, or a *PanicError; nil: it returned nil, or has not returned
	Cause   error // why the context of the run ended, if that decided the outcome; else nil
}

func (e *RunError) Error() string {
	text, last := fmt.Sprintf("timer %q: run %s: %s", e.Timer, e.ID, e.Outcome), ""
	for _, err := range e.Unwrap() {
		if more := fmt.Sprintf(": %v", err); more != last { // a handler often returns the cause
			text, last = text+more, more // fmt survives an Error that panics
		}
	}
	return text
}

// Unwrap returns Cause and Err, without those that are nil.
func (e *RunError) Unwrap() (errs []error) {
	for _, err := range []error{e.Cause, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Payload returns what the run was given by whoever triggered it; nil: nothing. All attempts get
// the same bytes: do not change them.
func (r *Run) Payload() []byte {
	if r == nil || r.trigger == nil {
		return nil
	}
	return r.trigger.payload
}

// SetResult sets what TriggeredRun.Wait returns. The last call counts, in whichever attempt; calls
// after the end of the run have no effect. The result of a run that nobody on this host triggered
// is dropped.
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
