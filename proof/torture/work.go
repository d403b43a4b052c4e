package torture

// A Work is a log entry about durable runs.
type Work struct {
	ID       int64  `json:"id,omitempty"` // of a run, the same for all its attempts
	Attempt  int    `json:"attempt,omitempty"`
	Handler  string `json:"handler,omitempty"`
	Schedule string `json:"schedule,omitempty"` // "" if it was triggered
	Tick     int64  `json:"tick,omitempty"`     // µs, of the schedule
	Worker   string `json:"worker,omitempty"`   // of an attempt
	State    string `json:"state,omitempty"`    // of a run
	// Outcome is how an attempt ended, in the terms of package durable, or the outcome of a
	// transaction: Committed, RolledBack or Unknown.
	Outcome string `json:"outcome,omitempty"`
	// Key is the key of a triggered run; for an attempt, the key in its payload. In a Triggered
	// line, it is the part before "/0", "/1" and so on, and Runs is their number.
	Key  string `json:"key,omitempty"`
	Runs int    `json:"runs,omitempty"`

	// These are the database's counts of a schedule's ticks: Queued, Passed over with a reason, the
	// Last one, the Next that is due, and the time Now, in µs.
	Queued int64 `json:"queued,omitempty"`
	Passed int64 `json:"passed,omitempty"`
	Last   int64 `json:"last,omitempty"`
	Next   int64 `json:"next,omitempty"`
	Now    int64 `json:"now,omitempty"`
	Period int64 `json:"period,omitempty"`
}

// These are the kinds of lines about durable runs. There are also Seen for an attempt that was
// valid from First to Last, and Untold for one that was not told of the end.
const (
	Triggered  = "triggered"  // from a client: a transaction that triggers runs has ended
	Started    = "started"    // a handler was called
	Returned   = "returned"   // the handler is about to return
	Counted    = "counted"    // the database told a worker that its result counts
	Registered = "registered" // from a worker: it has registered, and looks for work from now on
	Looked     = "looked"     // from the watch: how many runs were Running according to the database
	Expired    = "expired"    // from the watch: a lease ended at First, and the run was still there at Last
	Ticks      = "ticks"      // from the watch, at the start and at the end
	Row        = "row"        // the final state of a run in the database
	Tried      = "tried"      // the final state of an attempt in the database
)

// These are the outcomes of a transaction.
const (
	Committed  = "committed"
	RolledBack = "rolled back"
	Unknown    = "unknown" // the answer to COMMIT was lost
)
