package outbox

import "time"

// HookGrace is how long Run waits at its end for queued hook calls; then it drops the rest. A hook
// that is running at that moment has HookGrace from the beginning of its call to return.
const HookGrace = 5 * time.Second

// Hooks report what happens on this relay, for metrics, alarms and audit logs of your own. Any of
// them may be nil. They come after the fact and change nothing. To do something before or after a
// delivery, write a Sink that calls another one.
//
// Hooks are called in the order in which things happened, one at a time, on a goroutine of their
// own. So they need no lock among themselves, and may be slow, and may call the Relay; a panic is
// logged. A hook must not wait for Run to return, because Run waits for the hook. Up to 10,000
// events wait while a hook is busy. Further ones are dropped and counted. Events are not durable:
// those of a relay that dies are lost.
type Hooks struct {
	// Attempted is called when a delivery was tried and its result is in the database.
	Attempted func(AttemptInfo)

	// DatabaseDown is called when three calls to the database in a row have failed; DatabaseUp is
	// called when a call has succeeded again.
	DatabaseDown func(DatabaseInfo)
	DatabaseUp   func(DatabaseInfo)
}

// An AttemptInfo describes the outcome of an attempt.
type AttemptInfo struct {
	ID         ID
	Topic, Key string
	Attempt    int // 1 for the first one
	Outcome    Outcome
	Took       time.Duration
	Err        error         // nil: success
	RetryIn    time.Duration // after OutcomeTransient
}

// A DatabaseInfo describes a database that does not answer, or answers again.
type DatabaseInfo struct {
	Database string        // "postgres", "mysql", "sqlite" or "sqlserver"
	Err      error         // of DatabaseDown
	DownFor  time.Duration // of DatabaseUp
}
