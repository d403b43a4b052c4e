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

// MaxPayloadLen is the maximum length of a run's payload in bytes (1 MiB).
const MaxPayloadLen = 1 << 20

// TriggerOptions are the options of Trigger. The zero value is fine. Trigger returns all faults at
// once.
type TriggerOptions struct {
	// RunAt is when the run is due, by the database's clock, in the years 1970 to 9999. RunIn sets
	// the same time as a duration from now, at most 366 days. Only one of them may be set. Default:
	// immediately.
	RunAt time.Time
	RunIn time.Duration

	// Priority orders the run among all runs that are due. Default PriorityNormal.
	Priority Priority

	// Key makes Trigger idempotent: while the database keeps a run of the handler with this Key,
	// even one that has ended, Trigger returns the ID of that run and queues nothing. Run.Key is
	// this Key. With KeyUntil or KeyFor, another run can have the Key earlier. While the
	// transaction of the first Trigger is open, a second Trigger waits for its end. After a
	// rollback, the second Trigger queues the run.
	//
	// In a Postgres transaction under REPEATABLE READ or SERIALIZABLE, Trigger fails with SQLSTATE
	// 40001 if another run with this Key was committed since the transaction began. Then repeat the
	// transaction, as these levels require anyway.
	//
	// At most 200 bytes. It must not begin with "run:" or "tick:", because generated keys do.
	// Default "": the run gets a generated key.
	Key string

	// KeyUntil says until when Key belongs to the run that this call queues. A run that has given
	// up its Key does not get it back by a retry or a Requeue. With any KeyUntil other than
	// KeyForever, later runs may have the same Key, so Run.Key is drawn at random. Default
	// KeyForever.
	KeyUntil KeyUntil

	// KeyFor says how long Key belongs to the run that this call queues, by the database's clock,
	// whether or not the run has ended. KeyFor and KeyUntil exclude each other. Run.Key is drawn at
	// random. At most 366 days. Default 0: KeyUntil applies.
	KeyFor time.Duration

	// Partition groups the runs that HandlerOptions.MaxPerPartition counts, for example by tenant.
	// It is any text of at most 200 bytes without control characters. Default "": MaxPerPartition
	// does not count the run.
	Partition string

	// MaxAttempts replaces the handler's Retry.MaxAttempts for this run. 1 to 1,000. Default 0: the
	// handler's value.
	MaxAttempts int

	// By says who triggers the run and why, for readers of its row. By and Note have at most 256
	// bytes each, and By must not be empty if Note is set. Required by Control.Trigger. Default:
	// none.
	By driver.Cause

	// TraceParent is the traceparent (W3C Trace Context) of the trace to which the attempts of the
	// run belong. Package oteldurable sets and reads it. At most 200 bytes. Default "": none.
	TraceParent string
}

// KeyUntil says until when a Key belongs to a run.
type KeyUntil string

const (
	// KeyForever lasts until the row of the run is deleted: see Config.Retention.
	KeyForever KeyUntil = ""
	// KeyUntilStarted lasts until the first attempt begins or the run is canceled before that. So
	// the run whose ID Trigger returns sees every change made before the Trigger or in its
	// transaction, because that run does not begin while the transaction is open.
	KeyUntilStarted KeyUntil = "started"
	// KeyUntilEnded lasts until the run has succeeded, is a dead letter, or was canceled. The key
	// also belongs to a run that waits for its next attempt. A run that has started may miss a
	// later change, and the Trigger for that change is then a duplicate. If every change needs a
	// run, use KeyUntilStarted.
	KeyUntilEnded KeyUntil = "ended"
)

// A Tx is a transaction of the caller: see SQLTx and pgxdurable.Tx.
type Tx = store.Tx

// Trigger queues a run of a handler and returns the run's ID. If tx is nil, Trigger uses its own
// transaction. This process does not need to have the handler. With tx, the run exists only if and
// when the transaction commits. Without tx, the run may or may not be queued after an error, so set
// Key and call again. TriggerMany also reports whether the run is a duplicate.
func (s *Store) Trigger(ctx context.Context, tx Tx, handler string, payload []byte, options TriggerOptions) (id int64,
	err error) {
	done, err := s.TriggerMany(ctx, tx, []TriggerManyParams{{handler, payload, options}})
	if err != nil {
		return 0, err
	}
	return done[0].ID, nil
}

// TriggerManyParams are the arguments of Trigger for one of many runs.
type TriggerManyParams struct {
	Handler string
	Payload []byte
	Options TriggerOptions
}

// Triggered is the outcome of a trigger.
type Triggered struct {
	ID int64 // of the run
	// Duplicate is true if nothing was queued because Options.Key belongs to a run. ID is the ID of
	// that run, which keeps the payload and options of the trigger that queued it.
	Duplicate bool
}

// TriggerMany is like Trigger for many runs. It returns the outcome of each, in the order of
// params. All runs are queued in one transaction, either the caller's or its own. If one is
// invalid, none is queued.
//
// On Postgres, a statement queues up to 1,000 runs or 4 MiB of payloads. Two transactions that
// trigger the same keys in a different order may deadlock, and Postgres then aborts one of them
// (SQLSTATE 40P01). Sort by Key, or repeat the transaction. If tx is nil, TriggerMany repeats it.
func (s *Store) TriggerMany(ctx context.Context, tx Tx, params []TriggerManyParams) ([]Triggered, error) {
	if err := s.ready(ctx); err != nil {
		return nil, named(err)
	}
	var errs []error
	runs := make([]store.NewRun, len(params))
	for i, p := range params {
		if err := checkTrigger(p.Handler, p.Payload, p.Options); err != nil {
			errs = append(errs, fmt.Errorf("durable: handler %.60q: not triggered: %w", p.Handler, err))
		}
		runs[i] = p.run()
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	inserted, err := s.store.Insert(ctx, tx, runs...)
	switch {
	case err != nil && len(params) == 1:
		return nil, fmt.Errorf("durable: handler %q: %w", params[0].Handler, err)
	case err != nil:
		return nil, fmt.Errorf("durable: %d runs: %w", len(params), err)
	}
	done := make([]Triggered, len(inserted))
	for i, in := range inserted {
		done[i] = Triggered{ID: in.ID, Duplicate: !in.Fresh}
	}
	return done, nil
}

// run returns the run to queue.
func (t TriggerManyParams) run() store.NewRun {
	o := t.Options
	return store.NewRun{Handler: t.Handler, RunAt: o.RunAt, RunIn: o.RunIn, Priority: int(o.Priority),
		MaxAttempts: o.MaxAttempts, Key: o.Key, KeyUntil: store.KeyUntil(o.KeyUntil), KeyFor: o.KeyFor,
		Partition: o.Partition, Payload: t.Payload, By: store.Cause(o.By), TraceParent: o.TraceParent}
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
			fault("Key", "%q looks like a generated key: start it with something else", o.Key)
		}
	}
	switch o.KeyUntil {
	case KeyForever, KeyUntilStarted, KeyUntilEnded:
	default:
		fault("KeyUntil", "%q: use KeyForever, KeyUntilStarted or KeyUntilEnded", o.KeyUntil)
	}
	if o.KeyFor < 0 || o.KeyFor > maxRetryAfter {
		fault("KeyFor", "%v: use 0 to %v", o.KeyFor, maxRetryAfter)
	}
	if o.KeyFor != 0 && o.KeyUntil != KeyForever {
		fault("KeyFor", "KeyUntil is set, too: use one of them")
	}
	if (o.KeyFor != 0 || o.KeyUntil != KeyForever) && o.Key == "" {
		fault("Key", "it is empty, and KeyUntil or KeyFor is set: set it, too")
	}
	if o.Partition != "" {
		checkText(o.Partition, "Partition", fault)
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

// Notify wakes the workers of all processes (Postgres), or only those of this Store (SQLite), so
// that they poll for runs immediately. Call it after committing a transaction that has triggered
// many or urgent runs. Notify does not wait and does not fail, because polling finds a run even if
// the notification is lost. The first Notify calls the database immediately. The calls of the next
// 10 ms share one more call to the database.
func (s *Store) Notify() {
	if s.ready(context.Background()) == nil {
		s.hint.Give(s.store.Notify)
	}
}

// Trigger is like Store.Trigger, and wakes this worker if tx is nil.
func (w *Worker) Trigger(ctx context.Context, tx Tx, handler string, payload []byte, options TriggerOptions) (id int64,
	err error) {
	id, err = w.store.Trigger(ctx, tx, handler, payload, options)
	if err == nil && tx == nil {
		w.claimer.Wake()
	}
	return id, err
}

// TriggerMany is like Store.TriggerMany, and wakes this worker if tx is nil.
func (w *Worker) TriggerMany(ctx context.Context, tx Tx, params []TriggerManyParams) ([]Triggered, error) {
	done, err := w.store.TriggerMany(ctx, tx, params)
	if err == nil && tx == nil {
		w.claimer.Wake()
	}
	return done, err
}
