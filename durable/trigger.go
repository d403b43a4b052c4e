package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// MaxPayloadLen is how many bytes a payload may have. Keep larger data in a table or a file, and
// put its name into the payload.
const MaxPayloadLen = 1 << 20

// TriggerOptions are the options of Trigger. The zero value is fine.
type TriggerOptions struct {
	// RunAt is when the run is due, by the database's clock; RunIn is in how long. At most one of
	// them may be set. Default: at once.
	RunAt time.Time
	RunIn time.Duration

	// Priority orders it among the runs that are due. Default PriorityNormal.
	Priority Priority

	// Key makes Trigger idempotent: while the database keeps a run of the handler with this Key,
	// even one that has ended, Trigger returns the ID of that run and queues nothing. Run.Key is
	// this Key. In a transaction of Postgres under REPEATABLE READ or SERIALIZABLE, Trigger fails
	// with SQLSTATE 40001 if another run with this Key was committed since it began: repeat the
	// transaction, as these levels ask for anyway. At most 200 bytes. It must not begin with "run:"
	// or "tick:", as the keys of other runs do. Default "": the run gets a key of its own.
	Key string

	// MaxAttempts overrides the handler's Retry.MaxAttempts for this run. Default 0: no override.
	MaxAttempts int

	// By is who triggers the run, and why, for readers of its row. Default: not said.
	By driver.Cause

	// TraceParent is the traceparent (W3C Trace Context) of the trace to which the attempts of the
	// run belong. Package oteldurable sets and reads it. At most 200 bytes. Default "": none.
	TraceParent string
}

// A Tx is a transaction of the caller: see SQLTx and pgxdurable.Tx.
type Tx = store.Tx

// Trigger queues a run of a handler, in the caller's transaction, or in one of its own if tx is
// nil, and returns the ID of the run. This process need not know the handler. With tx the run
// exists only if and when the transaction commits. After an error without tx the run may be queued
// or not: set Key, and call again.
func (s *Store) Trigger(ctx context.Context, tx Tx, handler string, payload []byte, options TriggerOptions) (id int64,
	err error) {
	if err := s.ready(ctx); err != nil {
		return 0, named(err)
	}
	if err := checkTrigger(handler, payload, options); err != nil {
		return 0, fmt.Errorf("durable: handler %.60q: not triggered: %w", handler, err)
	}
	id, _, err = s.store.Insert(ctx, tx, store.NewRun{Handler: handler, RunAt: options.RunAt, RunIn: options.RunIn,
		Priority: int(options.Priority), MaxAttempts: options.MaxAttempts, Key: options.Key, Payload: payload,
		By: store.Cause(options.By), TraceParent: options.TraceParent})
	if err != nil {
		return 0, fmt.Errorf("durable: handler %q: %w", handler, err)
	}
	return id, nil
}

func checkTrigger(handler string, payload []byte, o TriggerOptions) error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	checkText(handler, "handler", fault)
	checkPayload(payload, fault)
	if o.Key != "" {
		checkText(o.Key, "Key", fault)
		if strings.HasPrefix(o.Key, "run:") || strings.HasPrefix(o.Key, "tick:") {
			fault("Key", "%q is like those that runs without one have: use one that begins otherwise", o.Key)
		}
	}
	if o.TraceParent != "" {
		checkText(o.TraceParent, "TraceParent", fault)
	}
	if o.RunIn < 0 || o.RunIn > maxRetryAfter {
		fault("RunIn", "%v: use 0 to %v", o.RunIn, maxRetryAfter)
	}
	if o.RunIn != 0 && !o.RunAt.IsZero() {
		fault("RunAt", "RunIn is set, too: use one of them")
	}
	if y := o.RunAt.Year(); !o.RunAt.IsZero() && (y < firstYear || y > lastYear) {
		fault("RunAt", "%v: use an instant between the years %d and %d", o.RunAt, firstYear, lastYear)
	}
	checkAttempts(o.MaxAttempts, fault)
	checkPriority(o.Priority, fault)
	if o.By != (driver.Cause{}) {
		if err := o.By.Validate(); err != nil {
			fault("By", "%w", err)
		}
	}
	return errors.Join(errs...)
}

// Notify wakes the workers of all processes (Postgres), or those of this Store (SQLite), so that
// they look for runs now and not within their PollInterval. Call it after the commit of a
// transaction that has triggered many runs, or urgent ones. It does not wait and does not fail,
// because nothing depends on it: a run is found by polling even if the notification is lost. The
// first call of Notify calls the database at once; those of the next 10 ms share one more call.
func (s *Store) Notify() {
	if s.ready(context.Background()) == nil {
		s.hint.Give(s.store.Notify)
	}
}

// Trigger is Store.Trigger, and wakes this worker if tx is nil.
func (w *Worker) Trigger(ctx context.Context, tx Tx, handler string, payload []byte, options TriggerOptions) (id int64,
	err error) {
	id, err = w.store.Trigger(ctx, tx, handler, payload, options)
	if err == nil && tx == nil {
		w.claimer.Wake()
	}
	return id, err
}
