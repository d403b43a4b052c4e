package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// HookGrace is how long Run waits at its end for the queued hook calls. Then it drops the rest. A
// hook that is running at that moment may take up to HookGrace in total.
const HookGrace = 5 * time.Second

// Hooks report events on this host, for your own metrics, alarms and audit logs. Any of them may be
// nil. They are called after the event and cannot change the outcome. To run code before or around
// a run, use a Middleware.
//
// Hooks are called in the order of the events, one at a time, in their own goroutine. They need no
// lock among themselves, may be slow, and may call the Scheduler or cancel the context of Run. A
// panic is logged. A hook must not wait for Run to return, because Run waits for the hook. A hook
// that triggers a run for every run reported to it creates an endless loop. Up to 10,000 events are
// queued while a hook is busy. Further events are dropped, counted (Status.DroppedEvents,
// tickslot_hook_events_dropped_total) and logged, at most once a minute. If a hook never returns,
// all later events are lost.
//
// When Run ends, it spends up to HookGrace (5 s) on the queued events, and then drops the rest. If
// a hook does not return, the error of Run names it (StuckError). If a run is still in progress
// when Run returns, its end is not reported.
//
// Every due tick is reported once on each host, by RunStarted or by TickSkipped. If one host runs
// it, the others skip it (ReasonTickTaken, ReasonFull). For each run RunStarted is called first and
// RunEnded last.
type Hooks struct {
	// RunStarted is called when a run has started.
	RunStarted func(RunInfo)

	// AttemptFailed is called if the handler has failed and Timer.Retry allows another attempt. It
	// is called before the wait.
	AttemptFailed func(AttemptInfo)

	// RunEnded is called when a run has ended, after its last attempt, whatever the outcome.
	RunEnded func(RunResult)

	// TickSkipped is called when a tick has started no run on this host. It is not called for a
	// Trigger that was refused, because Trigger returns the reason.
	TickSkipped func(SkipInfo)

	// LeaseLost is called when a run has lost its slot, unless the run was canceled.
	LeaseLost func(LossInfo)

	// StoreDown is called when the store, or one of its servers, has failed three consecutive
	// times. Ticks then follow OnStoreDown without calling it.
	StoreDown func(StoreInfo)

	// StoreUp is called when the store or that server has answered three consecutive times again.
	StoreUp func(StoreInfo)

	// StoreCalled is called after each call that acquires, renews or releases slots. Such calls are
	// frequent: if this hook is slow, events of the other hooks are dropped.
	StoreCalled func(dlock.StoreCall)
}

// RunInfo describes a run at the time of an event or of a Status.
type RunInfo struct {
	ID       string // the argument of CancelRun, see Run.ID
	Timer    string
	Tick     time.Time // zero if the run was triggered
	CaughtUp bool      // the tick was missed, see CatchUp
	OnStart  bool      // Timer.RunOnStart started it
	// For a triggered run: who triggered it, if known, and the length of its payload in bytes.
	TriggeredBy driver.Cause
	PayloadLen  int
	Slot        int          // see Run.Slot
	Fence       dlock.Fence  // see Run.Fence
	Holder      dlock.Holder // this host
	StartedAt   time.Time
	Attempt     int  // how many times the handler was called
	Degraded    bool // the run continues without the store, see Run.Degraded
	Valid       bool // see Run.Valid
	Overdue     bool // past MaxRunTime: the handler ignores its context
}

// AttemptInfo describes a failed attempt of a run that will be retried.
type AttemptInfo struct {
	RunInfo
	FailedAt time.Time     // when the handler returned
	Err      error         // a *PanicError if the handler panicked
	RetryIn  time.Duration // the wait before the next attempt
}

// RunResult describes how a run ended. A hook receives all fields. In Status and Explain, ID,
// CaughtUp, TriggeredBy, PayloadLen, Fence, Degraded and Overdue are zero.
type RunResult struct {
	RunInfo // when the run ended; Attempt is the number of attempts
	Outcome Outcome
	Took    time.Duration // includes the waits between attempts
	Err     error         // the error of the last attempt; a *PanicError if the handler panicked
}

// SkipInfo describes a tick that has started no run on this host.
type SkipInfo struct {
	Timer  string
	Tick   time.Time // the first tick, if there are several
	Ticks  uint64    // the number of ticks; more than 1 only with ReasonMissed
	Reason Reason
	// Holder has the slot that ends first, or claimed the tick last, if the store reported it.
	// Otherwise it is zero.
	Holder dlock.Holder
	Err    error // the store's answer (a *dlock.NotAcquiredError or another error), the blackout, or nil
}

// LossInfo describes the loss of a run's slot. Slot and Fence belong to the lost lease.
type LossInfo struct {
	RunInfo
	LostAt time.Time // when this host noticed the loss
	GoesOn bool      // with StoreDownRunLocal the run continues without the store; otherwise its context has ended
	Err    error     // a *dlock.LostError
}

// StoreInfo describes the store, or one of its servers, that is down or up again.
type StoreInfo struct {
	Store    string        // as in Status
	Server   string        // a server of, for example, a Redis Cluster; "" means the whole store
	NotSetUp bool          // if down: the store answers, but is not set up correctly (dlock.ErrSetup)
	Err      error         // if down: the error of the last call
	DownFor  time.Duration // if up: how long the store was down
}
