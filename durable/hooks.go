package durable

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// HookGrace is how long Run waits at its end for the hooks of what has happened, and then for the
// hook that is being called.
const HookGrace = 5 * time.Second

// Hooks report what happens on this worker, for metrics, alarms and audit logs of your own. Any of
// them may be nil. They are notifications: they come after the fact and change nothing. What has to
// happen before an attempt, or around it, is a Middleware.
//
// Hooks are called in the order in which things happened, one at a time, on a goroutine of their
// own. So they need no lock among themselves, and may be slow, panic, which is logged, and call the
// Worker; only one that waits for Run to return would wait for itself. Up to 10,000 events wait
// while a hook is busy. Further ones are dropped and counted. They are not durable: a worker that
// dies tells nobody.
type Hooks struct {
	// RunStarted is called when an attempt has started.
	RunStarted func(RunInfo)

	// AttemptFailed is called when an attempt has failed, the run is to be tried again, and the
	// database has that.
	AttemptFailed func(AttemptInfo)

	// RunEnded is called when a run has ended for good and the database has that: it has succeeded,
	// is a dead letter, or was canceled. This is also said of the run of a dead worker that this
	// one found to have had its last attempt.
	RunEnded func(RunEndInfo)

	// LeaseLost is called when a run has lost its lease while its handler was running.
	LeaseLost func(RunInfo)

	// RunReclaimed is called when this worker has queued the run of another again, whose lease had
	// expired.
	RunReclaimed func(ReclaimInfo)

	// TicksMaterialized is called when this worker has accounted for ticks that came due.
	TicksMaterialized func(TicksInfo)

	// DatabaseDown is called when three calls in a row have failed, of whatever part of the worker,
	// and DatabaseUp when it has answered again.
	DatabaseDown func(DatabaseInfo)
	DatabaseUp   func(DatabaseInfo)
}

// RunInfo is an attempt of a run as a hook sees it.
type RunInfo struct {
	ID          int64
	Handler     string
	Schedule    string    // "": it was triggered
	DueAt       time.Time // the tick; zero: it was triggered
	Attempt     int
	MaxAttempts int
	Key         string
	TriggeredBy dlock.Origin
	PayloadLen  int
	Worker      string
	StartedAt   time.Time // by the clock of this host
}

// AttemptInfo is an attempt that has failed.
type AttemptInfo struct {
	RunInfo
	Outcome Outcome
	Took    time.Duration
	Err     error         // a *PanicError if the handler panicked
	RetryIn time.Duration // until the next attempt
}

// RunEndInfo is a run that has ended for good.
type RunEndInfo struct {
	RunInfo
	State   State         // StateSucceeded, StateDead or StateCanceled
	Outcome Outcome       // of the last attempt
	Took    time.Duration // the last attempt
	Err     error         // of the last attempt
}

// ReclaimInfo is a run that was taken from a worker.
type ReclaimInfo struct {
	ID       int64
	Handler  string
	Schedule string
	Attempt  int
	Worker   string // that had it
}

// TicksInfo is what has become of ticks of a schedule.
type TicksInfo struct {
	Schedule                           string
	Queued, Coalesced, Skipped, Paused int64
}

// DatabaseInfo is the database that does not answer, or answers again.
type DatabaseInfo struct {
	Database string        // postgres or sqlite
	Err      error         // down: of the last call
	DownFor  time.Duration // up: how long it was down
}

// An Outcome is how an attempt ended.
type Outcome string

const (
	OutcomeOK          Outcome = "ok"
	OutcomeFailed      Outcome = "error"
	OutcomePanicked    Outcome = "panic"
	OutcomeTimedOut    Outcome = "timeout"     // it reached MaxRunTime
	OutcomeCanceled    Outcome = "canceled"    // somebody canceled the run, whatever the handler returned
	OutcomeInterrupted Outcome = "interrupted" // its worker shut down and gave it back
	OutcomeLost        Outcome = "lost"        // its lease expired, and a worker reclaimed it
)

// A State is that of a run.
type State string

const (
	StateQueued    State = "queued" // it waits for its first attempt or its next one
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateDead      State = "dead" // a dead letter: its attempts are used up
	StateCanceled  State = "canceled"
)
