package torture

// A Work is an entry about durable runs.
type Work struct {
	ID       int64  `json:"id,omitempty"` // of a run, the same for all attempts
	Attempt  int    `json:"attempt,omitempty"`
	Handler  string `json:"handler,omitempty"`
	Schedule string `json:"schedule,omitempty"` // "": it was triggered
	Tick     int64  `json:"tick,omitempty"`     // µs, of the schedule
	Worker   string `json:"worker,omitempty"`   // of an attempt
	State    string `json:"state,omitempty"`    // of a run
	// Outcome is how an attempt ended, as package durable calls it, or a transaction: Committed,
	// RolledBack or Unknown.
	Outcome string `json:"outcome,omitempty"`
	// Key is that of a run that was triggered; of an attempt it is what its payload says. Triggered
	// has what comes before "/0", "/1" and so on, and how many Runs there are.
	Key  string `json:"key,omitempty"`
	Runs int    `json:"runs,omitempty"`

	// What the database has counted of a schedule's ticks: those that were Queued, those that were
	// Passed over with a reason, the Last of them, the Next that is due, and the time Now, in µs.
	Queued int64 `json:"queued,omitempty"`
	Passed int64 `json:"passed,omitempty"`
	Last   int64 `json:"last,omitempty"`
	Next   int64 `json:"next,omitempty"`
	Now    int64 `json:"now,omitempty"`
	Period int64 `json:"period,omitempty"`
}

// The kinds of lines about durable runs. Of an attempt that was valid from First to Last there are
// lines of the kind Seen, and if it was not told of the end of that, of the kind Untold.
const (
	Triggered  = "triggered"  // of a client: a transaction that triggers runs has ended
	Started    = "started"    // a handler was called
	Returned   = "returned"   // it is about to return
	Counted    = "counted"    // a worker was told by the database that its result counts
	Registered = "registered" // of a worker: it has registered, and looks for work from now on
	Looked     = "looked"     // of the watch: how many runs were Running, as the database has it
	Expired    = "expired"    // of the watch: a lease ended at First, and the run was still there at Last
	Ticks      = "ticks"      // of the watch, at the beginning and at the end
	Row        = "row"        // what the database has in the end of a run
	Tried      = "tried"      // what the database has in the end of an attempt
)

// The outcomes of a transaction.
const (
	Committed  = "committed"
	RolledBack = "rolled back"
	Unknown    = "unknown" // the answer to COMMIT was lost
)
