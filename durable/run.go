package durable

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// A Run is what a handler gets: one attempt of a run. In a unit test of a handler, fill in the
// fields that the handler reads.
type Run struct {
	ID       int64 // same for all attempts
	Handler  string
	Schedule string    // "" if the run was triggered
	DueAt    time.Time // the tick; zero if the run was triggered
	Attempt  int       // 1 for the first attempt, higher for a retry
	// MaxAttempts is the number of the last attempt: if that attempt fails, the run is not tried
	// again. Attempts that a worker gave back when it shut down, and attempts before a Requeue, do
	// not count and raise it. 0 means that only Retry.MaxElapsedTime ends the attempts.
	MaxAttempts int
	Payload     []byte
	// Key is the run's idempotency key: it is the same for all attempts, and no other run of the
	// handler has it. Pass it to every service that the handler calls, so that the service can tell
	// a repeated request from a new one. Key is TriggerOptions.Key if that belongs to the run
	// forever. Otherwise it is drawn at random when the run is queued. A random Key is unique
	// across databases, and also among runs queued after an older copy of the database was
	// restored. (Then the database uses IDs again. A tick that the copy lacks gets a new run with a
	// new Key.)
	Key         string
	TriggeredBy driver.Cause // who triggered or requeued the run; zero if unknown
	TraceParent string       // see TriggerOptions.TraceParent
	Worker      string
	EnqueuedAt  time.Time

	valid func() bool // nil if a test made the Run
}

// Valid reports whether this worker owns the run now, so that no other worker does. It reads clocks
// and does not call the database. Check it before each step that two workers must not take at the
// same time. After a pause of the whole process beyond the lease, Valid is false immediately, while
// the context may end a moment later.
func (r *Run) Valid() bool { return r.valid == nil || r.valid() }

type runKey struct{}

// RunFromContext returns the run whose handler was called with ctx or a parent of ctx. ok is false
// if there is none.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// ContextWithRun returns a context with a run, for unit tests of code that calls RunFromContext.
func ContextWithRun(ctx context.Context, run *Run) context.Context {
	return context.WithValue(ctx, runKey{}, run)
}

// newRun returns the Run that the handler gets.
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
