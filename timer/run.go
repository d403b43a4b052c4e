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

// A Run is one call of a handler, as seen by the handler. RunFromContext returns a nil *Run outside
// a run. The methods of a nil *Run return zero values. ContextWithRun creates a Run for a test.
type Run struct {
	settings  *settings
	host      *runHost
	tick      int64                       // µs; 0 if the run was triggered
	lease     atomic.Pointer[dlock.Lease] // the latest lease; nil if it never had one
	ctx       runContext                  // the handler's context; ends with MaxRunTime, the lease, or draining
	startedAt time.Time
	trigger   *triggering // nil if the run has a tick
	given     *RunSpec    // the argument of ContextWithRun; nil for a run of a Scheduler
	idOnce    sync.Once   // computes id
	id        string      // read only through ID
	firstSlot int32       // the slot with which it began; -1 if none in the store
	number    int64       // the fence with which it began, or its number on this host
	degraded  atomic.Bool
	attempt   atomic.Int32
	place     int32 // its place on this host; set before the handler is called and constant after that
	local     bool  // it does not need the store
	caughtUp  bool  // its tick was missed
	onStart   bool  // RunOnStart started it

	// entry.mu guards these fields.
	over        bool        // the handler has returned
	late        bool        // the handler had not returned at MaxRunTime
	holding     bool        // whether it counts as holding a slot
	unwatch     func() bool // stops watching the lease
	maxRunTimer *time.Timer // fires at MaxRunTime and at 1.5 × MaxRunTime
	retrying    *retrying   // nil before the first retry
}

// RunFromContext returns the run for which a handler was called. Outside a run it returns nil and
// false. The methods of the nil *Run may be called.
func RunFromContext(ctx context.Context) (run *Run, ok bool) {
	run, ok = ctx.Value(runKey{}).(*Run)
	return run, ok
}

// ID returns an ID that no other run of the timer in the fleet has. It does not change, and it is
// the argument of CancelRun. If the run began with a slot in the store, the ID consists of slot and
// fence, as in "2-1732331000000000". Otherwise it consists of the holder and a number.
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

// Tick returns the scheduled instant, which is the same on every host, or the zero time if the run
// was triggered. With RunOnStartEachHost it is the time at which this host started.
func (r *Run) Tick() (tick time.Time) {
	if r != nil && r.tick != 0 {
		tick = time.UnixMicro(r.tick).UTC()
	}
	return tick
}

// endsAt returns when the run reaches MaxRunTime.
func (r *Run) endsAt() time.Time { return r.startedAt.Add(r.settings.timer.MaxRunTime) }

// now returns the current time on the clock with which the run began. Even if the host's clock is
// set, hooks see every event of the run between its start and its end.
func (r *Run) now() time.Time { return r.startedAt.Add(time.Since(r.startedAt)) }

// Slot returns which of the timer's slots the run holds. No other valid run holds the same slot. If
// the timer's limits are not in the store (LocalOnly, NoLimit, or no store), the number is unique
// only on this host. Slot returns -1 for a run that started without the store during an outage,
// until the store is back and the run gets a slot.
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

// Fence returns a number that increases with every run of the slot. A resource that remembers the
// highest fence of each slot can refuse a run that has lost its lease. Fence returns 0 for a run
// without a lease in the store.
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

// Degraded reports whether the run continues without the store, because it started while the store
// did not answer, or because its lease could not be renewed. See StoreDownRunLocal. Degraded
// returns false again once the run has got a slot after the outage.
func (r *Run) Degraded() bool { return r != nil && r.degraded.Load() }

// Valid reports whether the run holds its slot at this moment. A call takes about a microsecond.
// Call Valid before each step that must not happen twice. If the timer's limits are not in the
// store, the run is valid until its context ends.
func (r *Run) Valid() bool {
	if r == nil || r.Degraded() {
		return false
	}
	if l := r.lease.Load(); l != nil {
		return l.Valid()
	}
	return r.ctx.cause() == nil
}

// Attempt returns how many times the handler has been called in this run, including this call. More
// than 1 is a retry. See Retry.
func (r *Run) Attempt() int {
	if r == nil {
		return 0
	}
	return int(r.attempt.Load())
}

// An Outcome says how a run ended.
type Outcome string

const (
	OutcomeOK        Outcome = "ok"
	OutcomeFailed    Outcome = "error"
	OutcomePanicked  Outcome = "panic"
	OutcomeTimedOut  Outcome = "timeout"    // the run reached MaxRunTime
	OutcomeLeaseLost Outcome = "lease_lost" // the run lost its lease
	OutcomeCanceled  Outcome = "canceled"   // the run was canceled, whatever the handler returned
	OutcomeDraining  Outcome = "draining"   // draining took too long
)

// outcomeOf returns the outcome of a run, from the cause of its context and the result of the
// handler. It does not call methods of the handler's error, because they may panic.
func outcomeOf(cause, err error, panicked bool) Outcome {
	if panicked {
		return OutcomePanicked
	}
	switch {
	case errors.Is(cause, ErrCanceled): // first, because a cancellation through the store also loses the lease
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

// A runContext is the context of a run. It creates standard contexts only when a caller first needs
// more than the run and its deadline. A handler that never waits returns before that.
//
// Creating two contexts and a timer for every run costs more than everything else in a run. Without
// a store, a run takes 12 µs and 5 allocations if its handler does not use them, and 27 µs and 15
// allocations if it does (BenchmarkAllocationsOfContexts).
type runContext struct {
	run *Run // the host of the run has the parent context of all runs

	mu     sync.Mutex
	made   context.Context         // nil until created
	cancel context.CancelCauseFunc // ends made
	stop   context.CancelFunc      // ends made and frees its timer
	over   bool                    // the run has ended
}

type runKey struct{}

// base returns the parent context of all runs.
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
	case r.over: // the run ended first, so later events do not matter
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

// cause returns why the context has ended, or nil if it has not. It creates a context only if
// necessary.
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
	if r.stop != nil { // release the resources in the parent context
		r.stop()
		r.cancel(nil)
	}
}
