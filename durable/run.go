package durable

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// A Run is an attempt of a run, as its handler sees it. The unit test of a handler fills in what
// the handler reads.
type Run struct {
	ID       int64 // the same for all attempts
	Handler  string
	Schedule string    // "": it was triggered
	DueAt    time.Time // the tick; zero: it was triggered
	Attempt  int       // from 1, and grows with every attempt: more than 1 is a retry
	// MaxAttempts is the number of the last attempt: the run is not tried again if that one fails.
	// Attempts that do not count raise it: those that a worker gave back when it shut down, and
	// those before a Requeue. 0: Retry.MaxElapsedTime alone says when to give up.
	MaxAttempts int
	Payload     []byte
	// Key is the run's idempotency key: it is the same for all attempts, and no other run of the
	// handler has it. Pass it to every service that the handler calls, so that the service can tell
	// a repeated request from a new one. It is TriggerOptions.Key, if that belongs to the run for
	// ever, or else drawn at random when the run is queued: then no run of another database has
	// it either, nor one that is queued after an older copy of the database was restored. (The
	// IDs of runs are given again then. A tick that the copy lacks is a new run, with a new key.)
	Key         string
	TriggeredBy driver.Cause // who triggered it, or queued it again; zero: not said
	TraceParent string       // as TriggerOptions has it
	Worker      string
	EnqueuedAt  time.Time

	valid func() bool // nil: a test has made it
}

// Valid reports whether this worker owns the run at this instant: no other has it. It reads clocks
// and does not call the database: ask it before each step that must not be done twice at once.
// After a pause of the whole process it is false at once, while the context may end a moment later.
func (r *Run) Valid() bool { return r.valid == nil || r.valid() }

type runKey struct{}

// RunFromContext returns the run of the handler to which the context, or its parent, was passed. ok
// is false if there is none.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// ContextWithRun returns a context with a run in it, for the unit test of code that calls
// RunFromContext.
func ContextWithRun(ctx context.Context, run *Run) context.Context {
	return context.WithValue(ctx, runKey{}, run)
}

// newRun returns a run as its handler sees it.
func newRun(r store.Run, worker string) *Run {
	return &Run{ID: r.ID, Handler: r.Handler, Schedule: r.Schedule, DueAt: utc(r.DueAt), Attempt: r.Attempt,
		MaxAttempts: r.MaxAttempts, Payload: r.Payload, Key: keyOf(r), TriggeredBy: driver.Cause(r.By),
		TraceParent: r.TraceParent, Worker: worker,
		EnqueuedAt: utc(r.CreatedAt)}
}

// keyOf returns the idempotency key of a run.
func keyOf(r store.Run) string {
	switch {
	case r.Key != "":
		return r.Key
	case r.Schedule != "":
		return "tick:" + r.Nonce
	default:
		return "run:" + r.Nonce
	}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
