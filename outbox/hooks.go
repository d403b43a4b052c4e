package outbox

import "time"

// HookGrace is how long Run waits at its end for queued hook calls before it drops the rest. A hook
// that is running at that moment has HookGrace, counted from the beginning of its call, to return.
const HookGrace = 5 * time.Second

// Hooks report what happens on this relay, for metrics, alarms and audit logs of your own. Any of
// them may be nil. Hooks are called after the fact and change nothing. To do something before or
// after a delivery, write a Sink that calls another Sink.
//
// Hooks are called one at a time, in the order of the events, on a separate goroutine. So they need
// no lock among themselves, may be slow, and may call the Relay. A panic is logged. A hook must not
// wait for Run to return, because Run waits for the hook. Up to 10,000 events wait while a hook is
// busy. Further events are dropped and counted. Events are not durable: when a relay dies, its
// events are lost.
type Hooks struct {
	// Attempted is called when a delivery was tried and its result is in the database.
	Attempted func(AttemptInfo)

	// DatabaseDown is called when three calls to the database in a row have failed. DatabaseUp is
	// called when a call has succeeded again.
	DatabaseDown func(DatabaseInfo)
	DatabaseUp   func(DatabaseInfo)
}

// An AttemptInfo describes the outcome of an attempt.
type AttemptInfo struct {
	ID         ID
	Topic, Key string
	Attempt    int // 1 for the first attempt
	Outcome    Outcome
	Took       time.Duration
	Err        error         // nil for a success
	RetryIn    time.Duration // set with OutcomeTransient
}

// A DatabaseInfo describes a database that does not answer, or answers again.
type DatabaseInfo struct {
	Database string        // "postgres", "mysql", "sqlite" or "sqlserver"
	Err      error         // set by DatabaseDown
	DownFor  time.Duration // set by DatabaseUp
}
