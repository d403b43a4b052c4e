package timer

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// HookGrace is how long Run waits at its end for the hook calls that are queued; then it drops the
// rest. If a hook is running at that moment, it has HookGrace from its beginning to return.
const HookGrace = 5 * time.Second

// Hooks report what happens on this host, for metrics, alarms and audit logs of your own. Any of
// them may be nil. They come after the fact and change nothing. To do something before or around a
// run, use a Middleware.
//
// Hooks are called in the order in which things happened, one at a time, on a goroutine of their
// own. So they need no lock among themselves, may be slow, and may call the Scheduler or end the
// context of Run; a panic is logged. A hook must not wait for Run to return, because Run waits for
// the hook. If a hook triggers a run for each run that is reported to it, that never ends. Up to
// 10,000 events wait while a hook is busy. Further ones are dropped, counted (Status.DroppedEvents,
// tickslot_hook_events_dropped_total) and logged, at most once a minute. If a hook never returns,
// all later events are lost.
//
// When Run ends, it spends up to HookGrace (5 s) on the events that still wait, and then drops the
// rest. If a hook does not return, the error of Run names it (StuckError). If a run is still in
// progress when Run returns, its end is not reported.
//
// Every tick that came due is reported once on each host, by RunStarted or by TickSkipped: one host
// runs it, the others skip it (ReasonTickTaken, ReasonFull). For each run RunStarted comes first
// and RunEnded last.
type Hooks struct {
	// RunStarted is called when a run has started.
	RunStarted func(RunInfo)

	// AttemptFailed is called before the wait for another attempt, when the handler has failed and
	// Timer.Retry allows one.
	AttemptFailed func(AttemptInfo)

	// RunEnded is called when a run has ended: after its last attempt, whatever the outcome.
	RunEnded func(RunResult)

	// TickSkipped is called when a tick has started no run on this host. It is not called for a
	// Trigger that was refused; Trigger returns the reason.
	TickSkipped func(SkipInfo)

	// LeaseLost is called when a run has lost its slot, but not when the run was canceled.
	LeaseLost func(LossInfo)

	// StoreDown is called when the store, or one of its servers, has failed three times in a row.
	// Ticks now follow OnStoreDown without calling it.
	StoreDown func(StoreInfo)

	// StoreUp is called when the store, or that server, has then answered three times in a row.
	StoreUp func(StoreInfo)

	// StoreCalled is called after each call that acquires, renews or releases slots. There are many
	// such calls: if this hook is slow, events of the other hooks are dropped.
	StoreCalled func(dlock.StoreCall)
}

// RunInfo is a run at the moment of a hook's event or of a Status.
type RunInfo struct {
	ID       string // what CancelRun takes, see Run.ID
	Timer    string
	Tick     time.Time // zero: it was triggered
	CaughtUp bool      // the tick was missed, see CatchUp
	OnStart  bool      // Timer.RunOnStart started it
	// For a triggered run: who triggered it, if known, and the length of its payload in bytes.
	TriggeredBy driver.Cause
	PayloadLen  int
	Slot        int          // see Run.Slot
	Fence       dlock.Fence  // see Run.Fence
	Holder      dlock.Holder // this host
	StartedAt   time.Time
	Attempt     int  // how often the handler has been called
	Degraded    bool // it continues without the store, see Run.Degraded
	Valid       bool // see Run.Valid
	Overdue     bool // past MaxRunTime: its handler ignores its context
}

// AttemptInfo is a failed attempt of a run that is retried.
type AttemptInfo struct {
	RunInfo
	FailedAt time.Time     // when the handler returned
	Err      error         // a *PanicError if the handler panicked
	RetryIn  time.Duration // the wait for the next attempt
}

// RunResult is how a run ended. A hook gets all of it. Status and Explain keep less: in theirs, ID,
// CaughtUp, TriggeredBy, PayloadLen, Fence, Degraded and Overdue are zero.
type RunResult struct {
	RunInfo // at its end; Attempt is the number of attempts
	Outcome Outcome
	Took    time.Duration // including the waits between attempts
	Err     error         // of the last attempt; a *PanicError if the handler panicked
}

// SkipInfo is a tick that has started no run on this host.
type SkipInfo struct {
	Timer  string
	Tick   time.Time // the first one, if there are several
	Ticks  uint64    // how many ticks; more than 1 only with ReasonMissed
	Reason Reason
	// Holder has the slot that ends first, or claimed the tick last, if the store reported it;
	// otherwise zero.
	Holder dlock.Holder
	Err    error // the store's answer (a *dlock.NotAcquiredError or another error), or the blackout; or nil
}

// LossInfo is the loss of a run's slot. Slot and Fence belong to the lost lease.
type LossInfo struct {
	RunInfo
	LostAt time.Time // when this host found out
	GoesOn bool      // StoreDownRunLocal: the run continues without the store; otherwise its context has ended
	Err    error     // a *dlock.LostError
}

// StoreInfo is the store, or one of its servers, that is down, or up again.
type StoreInfo struct {
	Store    string        // as in Status
	Server   string        // of a store of several servers, such as a Redis Cluster; "": the store as a whole
	NotSetUp bool          // down: it answers, but is not set up correctly (dlock.ErrSetup)
	Err      error         // down: of the last call
	DownFor  time.Duration // up: how long it was down
}
