package outbox

import "time"

// HookGrace is how long Run waits at its end for the hooks of what has happened, and then for the
// hook that is being called.
const HookGrace = 5 * time.Second

// Hooks report what happens on this relay, for metrics, alarms and audit logs of your own. Any of
// them may be nil. They come after the fact and change nothing. What has to happen around a
// delivery, a Sink does that calls another one.
//
// Hooks are called in the order in which things happened, one at a time, on a goroutine of their
// own. So they need no lock among themselves, and may be slow, panic, which is logged, and call the
// Relay; only one that waits for Run to return would wait for itself. Up to 10,000 events wait
// while a hook is busy. Further ones are dropped and counted. They are not durable: a relay that
// dies tells nobody.
type Hooks struct {
	// Attempted is called when a message was given to its sink and the database has what came of
	// it.
	Attempted func(AttemptInfo)

	// DatabaseDown is called when the database has not answered three times in a row, DatabaseUp
	// when it answers again.
	DatabaseDown func(DatabaseInfo)
	DatabaseUp   func(DatabaseInfo)
}

// An AttemptInfo says what came of an attempt.
type AttemptInfo struct {
	ID         ID
	Topic, Key string
	Attempt    int // 1 for the first one
	Outcome    Outcome
	Took       time.Duration
	Err        error         // nil: success
	RetryIn    time.Duration // after OutcomeTransient
}

// A DatabaseInfo says what has become of the database.
type DatabaseInfo struct {
	Database string        // "postgres", "mysql", "sqlite" or "sqlserver"
	Err      error         // of DatabaseDown
	DownFor  time.Duration // of DatabaseUp
}
