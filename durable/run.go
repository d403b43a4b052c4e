package durable

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// A Run is an attempt of a run, as its handler sees it. In a unit test of a handler, fill in the
// fields that the handler reads.
type Run struct {
	ID       int64 // the same for all attempts
	Handler  string
	Schedule string    // "": it was triggered
	DueAt    time.Time // the tick; zero: it was triggered
	Attempt  int       // 1 for the first attempt; more: a retry
	// MaxAttempts is the number of the last attempt: if that one fails, the run is not tried again.
	// Attempts that do not count raise it: those that a worker gave back when it shut down, and
	// those before a Requeue. 0: only Retry.MaxElapsedTime ends the attempts.
	MaxAttempts int
	Payload     []byte
	// Key is the run's idempotency key: it is the same for all attempts, and no other run of the
	// handler has it. Pass it to every service that the handler calls, so that the service can tell
	// a repeated request from a new one. It is TriggerOptions.Key if that belongs to the run for
	// ever. Otherwise it is drawn at random when the run is queued, so that it is also unique among
	// all databases, and among runs queued after an older copy of the database was restored. (IDs
	// are used again then. A tick that the copy lacks is a new run, with a new key.)
	Key         string
	TriggeredBy driver.Cause // who triggered it, or queued it again; zero: unknown
	TraceParent string       // see TriggerOptions.TraceParent
	Worker      string
	EnqueuedAt  time.Time

	valid func() bool // nil: a test made the Run
}

// Valid reports whether this worker owns the run now, so that no other worker does. It reads clocks
// and does not call the database: check it before each step that two workers must not do at the
// same time. After a pause of the whole process it is false immediately, while the context may end
// a moment later.
func (r *Run) Valid() bool { return r.valid == nil || r.valid() }

type runKey struct{}

// RunFromContext returns the run of the handler that was called with the context or a parent of it.
// ok is false if there is none.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// ContextWithRun returns a context with a run, for unit tests of code that calls RunFromContext.
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
