package timer

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// A Run is one call of a handler, as the handler sees it. The methods of a nil *Run, which
// RunFromContext returns outside a run, return zero values; ContextWithRun makes a Run for a test.
type Run struct {
	settings  *settings
	host      *runHost
	tick      int64                       // µs; 0: none, it was triggered
	lease     atomic.Pointer[dlock.Lease] // the latest; nil: it never had one
	ctx       runContext                  // of the handler; ends with MaxRunTime, the lease, or draining
	startedAt time.Time
	trigger   *triggering // nil: the run has a tick
	given     *RunSpec    // what ContextWithRun was given; nil: it is a run of a Scheduler
	idOnce    sync.Once   // makes id
	id        string      // only ID reads it
	firstSlot int32       // that it began with; -1: it began without a slot in the store
	number    int64       // the fence that it began with, or else its number on this host
	degraded  atomic.Bool
	attempt   atomic.Int32
	place     int32 // on this host; set before the handler is called, and constant from then on
	local     bool  // it needs no store
	caughtUp  bool  // its tick was missed
	onStart   bool  // RunOnStart started it

	// Guarded by entry.mu.
	over        bool        // the handler has returned
	late        bool        // it was not over at MaxRunTime
	holding     bool        // whether it counts as holding a slot
	unwatch     func() bool // stops watching the lease
	maxRunTimer *time.Timer // fires at MaxRunTime and at 1.5 × MaxRunTime
	retrying    *retrying   // nil before the first retry
}

// RunFromContext returns the run that a handler was called for. Outside a run it returns nil, whose
// methods may be called, and false.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// ID returns the name of the run, which no other run of the timer in the fleet has. It does not
// change, and CancelRun takes it. If the run began with a slot in the store, it is slot and fence,
// as in "2-1732331000000000"; otherwise it is the holder and a number.
func (r *Run) ID() string {
	if r == nil {
		return ""
	}
	r.idOnce.Do(func() {
		if r.firstSlot >= 0 {
			r.id = fleet.RunID(int(r.firstSlot), dlock.Fence(r.number))
		} else {
			r.id = r.host.idPrefix + strconv.FormatInt(r.number, 10)
		}
	})
	return r.id
}

// Timer returns the name of the timer.
func (r *Run) Timer() string {
	if r == nil {
		return ""
	}
	return r.settings.timer.Name
}

// Tick returns the scheduled instant, which is the same on every host; the zero time if the run was
// triggered. With RunOnStartEachHost it is the instant at which this host started.
func (r *Run) Tick() (tick time.Time) {
	if r != nil && r.tick != 0 {
		tick = time.UnixMicro(r.tick).UTC()
	}
	return tick
}

// endsAt returns when the run reaches MaxRunTime.
func (r *Run) endsAt() time.Time { return r.startedAt.Add(r.settings.timer.MaxRunTime) }

// now returns the present by the clock that the run began with. Even if the host's clock is set, an
// event of the run is then between its start and its end in the hooks.
func (r *Run) now() time.Time { return r.startedAt.Add(time.Since(r.startedAt)) }

// Slot returns which of the timer's slots the run holds: no other valid run holds the same one. If
// the timer's limits are not in the store (LocalOnly, NoLimit, or no store), the number is unique
// on this host only. It is -1 for a run that started without the store during an outage, until the
// store is back and that run gets a slot.
func (r *Run) Slot() int {
	if r == nil {
		return 0
	}
	if l := r.lease.Load(); l != nil {
		return l.Slot()
	}
	if r.local {
		return int(r.place)
	}
	return -1
}

// Fence returns a number that grows with every run of the slot. A resource that remembers the
// highest fence it has seen of each slot can refuse a run that has lost its lease. It is 0 for a
// run without a lease in the store.
func (r *Run) Fence() dlock.Fence {
	if r == nil {
		return 0
	}
	if l := r.lease.Load(); l != nil {
		return l.Fence()
	}
	if r.given != nil {
		return r.given.Fence
	}
	return 0
}

// Degraded reports whether the run continues without the store: it started while the store did not
// answer, or its lease could not be renewed. See StoreDownRunLocal. It is false again once the run
// has got a slot after the outage.
func (r *Run) Degraded() bool { return r != nil && r.degraded.Load() }

// Valid reports whether the run holds its slot at this instant. It takes about a microsecond: call
// it before each step that must not be done twice. If the timer's limits are not in the store, the
// run is valid until its context ends.
func (r *Run) Valid() bool {
	if r == nil || r.Degraded() {
		return false
	}
	if l := r.lease.Load(); l != nil {
		return l.Valid()
	}
	return r.ctx.cause() == nil
}

// Attempt returns how often the handler has been called in this run, including this call: more than
// 1 is a retry. See Retry.
func (r *Run) Attempt() int {
	if r == nil {
		return 0
	}
	return int(r.attempt.Load())
}

// An Outcome is how a run ended.
type Outcome string

const (
	OutcomeOK        Outcome = "ok"
	OutcomeFailed    Outcome = "error"
	OutcomePanicked  Outcome = "panic"
	OutcomeTimedOut  Outcome = "timeout"    // it reached MaxRunTime
	OutcomeLeaseLost Outcome = "lease_lost" // its lease was lost
	OutcomeCanceled  Outcome = "canceled"   // it was canceled, whatever the handler returned
	OutcomeDraining  Outcome = "draining"   // draining took too long
)

// outcomeOf returns the outcome of a run, from the cause of its context and what the handler
// returned. It calls no method of the handler's error, because that may panic.
func outcomeOf(cause, err error, panicked bool) Outcome {
	if panicked {
		return OutcomePanicked
	}
	switch {
	case errors.Is(cause, ErrCanceled): // first, because a cancel through the store also loses the lease
		return OutcomeCanceled
	case errors.Is(cause, dlock.ErrLost):
		return OutcomeLeaseLost
	case errors.Is(cause, ErrMaxRunTime):
		return OutcomeTimedOut
	case err == nil:
		return OutcomeOK
	case errors.Is(cause, ErrDraining):
		return OutcomeDraining
	default:
		return OutcomeFailed
	}
}

func (r *Run) any() bool   { return true }
func (r *Run) holds() bool { return r.holding }

// A runContext is the context of a run. It creates contexts of the standard library only when a
// caller first asks for more than the run and its deadline. A handler that never waits returns
// before that.
//
// Creating two contexts and a timer for every run costs more than everything else in a run: without
// a store, a run takes 12 µs and 5 allocations if its handler does not ask for them, and 27 µs and
// 15 if it does (BenchmarkAllocationsOfContexts).
type runContext struct {
	run *Run // whose host has the context of all runs

	mu     sync.Mutex
	made   context.Context         // nil: not yet
	cancel context.CancelCauseFunc // ends made
	stop   context.CancelFunc      // ends made, and frees its timer
	over   bool                    // the run has ended
}

type runKey struct{}

// base returns the context of all runs.
func (r *runContext) base() context.Context { return r.run.host.base }

// Deadline implements context.Context.
func (r *runContext) Deadline() (time.Time, bool) { return r.run.endsAt(), true }

// Done implements context.Context.
func (r *runContext) Done() <-chan struct{} { return r.context().Done() }

// Err implements context.Context.
func (r *runContext) Err() error { return r.context().Err() }

// Value implements context.Context.
func (r *runContext) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return r.run
	}
	if t := r.run.trigger; t != nil && t.values != nil {
		if value := t.values.Value(key); value != nil {
			return value
		}
	}
	return r.context().Value(key)
}

func (r *runContext) String() string { return "timer.Run(" + r.run.Timer() + ")" }

func (r *runContext) context() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.made != nil:
	case r.over: // the run ended first, whatever has happened since
		r.made, r.cancel = context.WithCancelCause(context.WithoutCancel(r.base()))
		r.cancel(nil)
	default:
		r.made, r.cancel = context.WithCancelCause(r.base())
		r.made, r.stop = context.WithDeadlineCause(r.made, r.run.endsAt(), ErrMaxRunTime)
	}
	return r.made
}

// lose ends the context of a run that has lost its lease.
func (r *runContext) lose(cause error) {
	r.context()
	r.cancel(cause)
}

// cause returns why the context has ended; nil: it has not. It creates no context unless it has to.
func (r *runContext) cause() error {
	r.mu.Lock()
	made, over := r.made != nil, r.over
	r.mu.Unlock()
	switch {
	case made:
	case over:
		return context.Canceled
	case r.base().Err() == nil && time.Now().Before(r.run.endsAt()):
		return nil
	}
	return context.Cause(r.context())
}

// end ends the context when the run has ended.
func (r *runContext) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.stop != nil { // release the resources that the parent holds
		r.stop()
		r.cancel(nil)
	}
}
