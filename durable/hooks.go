package durable

import (
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// HookGrace is how long Run waits at its end for queued hook calls before it drops the rest. A hook
// that is running at that moment has HookGrace, counted from the beginning of its call, to return.
const HookGrace = 5 * time.Second

// Hooks report what happens on this worker, for metrics, alarms and audit logs of your own. Any of
// them may be nil. Hooks are notifications: they are called after the fact and change nothing. To
// do something before or around an attempt, use a Middleware.
//
// Hooks are called one at a time, in the order of the events, on a separate goroutine. So they need
// no lock among themselves, may be slow, and may call the Worker. A panic is logged. A hook must
// not wait for Run to return, because Run waits for the hook. Up to 10,000 events wait while a hook
// is busy. Further events are dropped and counted. Events are not durable: when a worker dies, its
// events are lost.
type Hooks struct {
	// RunStarted is called when an attempt has started.
	RunStarted func(RunInfo)

	// AttemptFailed is called when an attempt has failed, its result is in the database, and the
	// run will be tried again.
	AttemptFailed func(AttemptInfo)

	// RunEnded is called when a run has ended for good (it has succeeded, is a dead letter, or was
	// canceled) and its result is in the database. It is also called when this worker reclaims a
	// run whose lease has expired, if the lost attempt was the last or the run was canceled.
	RunEnded func(RunResult)

	// LeaseLost is called when a run has lost its lease while its handler was running.
	LeaseLost func(RunInfo)

	// RunReclaimed is called when this worker has queued a run again because its lease had expired.
	// Only ID, Handler, Schedule, Attempt, MaxAttempts and Worker (the worker that lost the run)
	// are set.
	RunReclaimed func(RunInfo)

	// TicksMaterialized is called when this worker has accounted for ticks that came due.
	TicksMaterialized func(TicksInfo)

	// DatabaseDown is called when three calls to the database in a row have failed, even if
	// different parts of the worker made them. DatabaseUp is called when a call has succeeded
	// again.
	DatabaseDown func(DatabaseInfo)
	DatabaseUp   func(DatabaseInfo)
}

// RunInfo is a snapshot of an attempt, for a hook or Status.
type RunInfo struct {
	ID          int64        `json:"id"`
	Handler     string       `json:"handler"`
	Schedule    string       `json:"schedule,omitempty"` // "" if the run was triggered
	DueAt       time.Time    `json:"due_at,omitzero"`    // the tick; zero if the run was triggered
	Attempt     int          `json:"attempt"`
	MaxAttempts int          `json:"max_attempts,omitempty"` // see Run.MaxAttempts
	Key         string       `json:"key,omitempty"`
	TriggeredBy driver.Cause `json:"triggered_by,omitzero"`
	PayloadLen  int          `json:"payload_bytes,omitempty"`
	Worker      string       `json:"worker,omitempty"`
	StartedAt   time.Time    `json:"started_at"` // by this host's clock
	Valid       bool         `json:"valid"`      // see Run.Valid
}

// AttemptInfo is an attempt that has failed.
type AttemptInfo struct {
	RunInfo
	Outcome Outcome
	Took    time.Duration
	Err     error         // a *PanicError if the handler panicked
	RetryIn time.Duration // until the next attempt
}

// RunResult says how a run ended for good.
type RunResult struct {
	RunInfo
	State   State         // StateSucceeded, StateDead or StateCanceled
	Outcome Outcome       // of the last attempt
	Took    time.Duration // the last attempt
	Err     error         // of the last attempt
}

// TicksInfo says how ticks of a schedule were accounted for.
type TicksInfo struct {
	Schedule string
	TickCounts
}

// TickCounts counts the ticks of a schedule by how they were accounted for.
type TickCounts struct {
	Queued      int64 `json:"ticks_queued"`    // a run was queued
	Coalesced   int64 `json:"ticks_coalesced"` // covered by the run of another tick
	Skipped     int64 `json:"ticks_skipped"`
	PausedTicks int64 `json:"ticks_paused"` // they came due during a pause
}

// DatabaseInfo describes a database that does not answer, or answers again.
type DatabaseInfo struct {
	Database string        // postgres or sqlite
	Err      error         // DatabaseDown: error of the last call
	DownFor  time.Duration // DatabaseUp: how long it was down
}

// An Outcome is how an attempt ended.
type Outcome string

const (
	OutcomeOK          Outcome = "ok"
	OutcomeFailed      Outcome = "error"
	OutcomePanicked    Outcome = "panic"
	OutcomeTimedOut    Outcome = "timeout"     // the attempt reached MaxRunTime
	OutcomeCanceled    Outcome = "canceled"    // the run was canceled, no matter what the handler returned
	OutcomeInterrupted Outcome = "interrupted" // the worker shut down and gave the run back
	OutcomeLeaseLost   Outcome = "lease_lost"  // the lease expired, and a worker reclaimed the run
)

// A State is the state of a run.
type State string

const (
	StateQueued    State = "queued" // the run waits for its first or next attempt
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateDead      State = "dead" // the run is a dead letter
	StateCanceled  State = "canceled"
)
