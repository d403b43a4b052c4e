package cluster

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A Store keeps the registry: rows for hosts, recorded leases, events and runs. Packages
// cluster/sqlregistry and cluster/redisregistry implement it. NewMemoryStore implements it for one
// process.
//
// Each call is one round trip and returns when the deadline of its context has passed. Hosts send
// durations instead of times of day (except Run.Tick, which is an instant of the schedule). Each
// "ago" is measured from the time at which the call is sent, and the store converts it into an
// instant of its own clock. A call whose reply was lost may be repeated, and then nothing is
// written twice.
//
// Any text may be written. If a store cannot keep a character (NUL, invalid UTF-8), it returns
// U+FFFD in its place or drops it. All other text is returned unchanged, and names that differ in
// one byte are different names. Package cluster/clustertest checks all this.
type Store interface {
	// Write writes a batch from one host.
	Write(ctx context.Context, b Batch) (Written, error)

	// Read returns the hosts, the recorded leases, the records of timers, and the newest events and
	// runs.
	Read(ctx context.Context, q Query) (Rows, error)

	// Runs returns the last runs of a timer, newest first, up to RunsPerTimer.
	Runs(ctx context.Context, timer string) ([]Run, error)

	// Buckets returns the buckets of a timer, or those of the fleet if timer is "": one for each
	// interval and bin in which a run ended.
	Buckets(ctx context.Context, timer string) ([]Bucket, error)

	// Sweep deletes rows that are older than their retention, at most limit rows of each sort, and
	// returns their number. It deletes the record of a timer when the last run is too old, and
	// buckets when they are older than FineRetention or CoarseRetention. Any host may call it at
	// any time.
	Sweep(ctx context.Context, r Retention, limit int) (deleted int, err error)
}

// Limits for what a Store keeps. It deletes older rows in Sweep or earlier.
const (
	// RunsPerTimer is the number of newest runs that a Store keeps for each timer.
	RunsPerTimer = 50
	// MaxEvents is the number of newest events that a Store keeps for the whole fleet.
	MaxEvents = 1_000
)

// MaxBatch is the maximum number of rows of each sort (leases, events, runs) in a Batch, so that a
// Batch fits into one statement.
const MaxBatch = 500

// A Batch is what one host writes in one call. It contains each row at most once.
type Batch struct {
	Host   *Heartbeat // nil without a heartbeat
	Leases []LeaseRecord
	Events []Event
	Runs   []Run

	// Timers and Buckets summarize Runs. A Store counts them once, even if a batch arrives several
	// times: only if Number is higher than the Number of every batch of Host counted before. So a
	// repeated batch must have the same Number and the same runs. Nothing is counted if there is no
	// Host, if the store has no row for it when the batch arrives, or if a later heartbeat has
	// overtaken the batch.
	Number  int64 // 0 if nothing is to be counted
	Timers  []TimerRecord
	Buckets []Bucket
}

// Written is a Store's answer to a Batch.
type Written struct {
	// At is when the store received the batch, by its own clock. The host uses it only to measure
	// how far its own clock is off. Zero if unknown.
	At time.Time
	// HostUnknown reports that Host had no Detail and has no row, because the row was deleted or
	// the registry was emptied. The store wrote nothing about the host and counted nothing. The
	// host must send the heartbeat again with its Detail, and after that the Timers and Buckets
	// with their Runs.
	HostUnknown bool
}

// A Heartbeat reports that a process is alive. A Store ignores a heartbeat with a shorter UpFor
// than the last one, because it arrived late and could otherwise revive a process that has Left.
type Heartbeat struct {
	Holder      dlock.Holder // key of the row
	Environment string
	AppVersion  string
	Version     string        // of tickslot
	UpFor       time.Duration // since the process started
	ClockOffset time.Duration // its wall clock minus the store's, as last measured
	TTL         time.Duration // suspect after one TTL of silence, gone after two
	// Detail is a HostDetail as JSON, or nil if it is unchanged.
	Detail json.RawMessage
	// Left reports that the process has stopped cleanly, so it is gone immediately.
	Left bool
}

// A LeaseRecord is the state of a lease as its holder knows it. The key of its row is the Name, and
// for a semaphore also the Slot: a mutex and a semaphore with the same name have different rows.
//
// Among records of one grant (equal Holder and Grant), the last one wins, but a released row stays
// released. The row of another grant is replaced by these rules:
//   - If both have a fence, the higher fence wins, regardless of the other fields. So a late record
//     does not replace the row of the next holder.
//   - Otherwise, if the row is released or has expired by the store's clock, a live lease wins (not
//     Released, and ExpiresIn is positive).
//   - Otherwise, the grant that was acquired last wins.
//
// Without fences, a late record may replace the row of the next holder. The longer the record was
// delayed, the later its lease seems to have been acquired. If the lease of the next holder is over
// when the record arrives, the record always wins. The registry then names the wrong holder until
// the ExpiresIn of the late record has passed, or its lease is written as Released. The next record
// of the real holder takes the row back.
type LeaseRecord struct {
	Name       string
	Slots      int // 0 for a mutex
	Slot       int
	Kind       string
	Holder     dlock.Holder
	Fence      dlock.Fence   // 0 if the store of the lock has no fences
	Grant      string        // distinguishes the grants of one holder; not the token, which is a secret
	HeldFor    time.Duration // since it was acquired
	RenewedAgo time.Duration // since it was last acquired or extended
	ExpiresIn  time.Duration // from now; negative once it has ended
	Released   bool          // the release was RenewedAgo ago
}

// An Event is something that happened to a lease or a host. Its ID is unique.
type Event struct {
	ID     string
	Kind   EventKind
	Name   string // of the lease; "" if the event is about a host
	Slot   int    // -1 without a slot
	Fence  dlock.Fence
	Holder dlock.Holder // the affected process
	Text   string       // more information for people
	Ago    time.Duration
}

// An EventKind says what happened.
type EventKind string

const (
	EventAcquired   EventKind = "acquired"    // a lease was acquired
	EventReleased   EventKind = "released"    // its holder released it
	EventLost       EventKind = "lost"        // its holder lost it
	EventExpired    EventKind = "expired"     // the next holder found it expired and not released
	EventRevoked    EventKind = "revoked"     // an operator revoked it
	EventHostJoined EventKind = "host_joined" // a process started
	EventHostLeft   EventKind = "host_left"   // a process stopped cleanly
	EventHostGone   EventKind = "host_gone"   // a process was silent for two TTLs
	// EventHostRefused reports that a process was refused, because the store belongs to another
	// environment. The process takes no work.
	EventHostRefused EventKind = "host_refused"
	EventOperator    EventKind = "operator" // an operator changed something: Text says who, what and why
)

// A Run is an ended run of a timer. Its ID is unique.
type Run struct {
	ID       string
	Timer    string
	Holder   dlock.Holder
	Tick     time.Time // by the schedule; zero if triggered
	Slot     int       // -1 if it ran without one
	Fence    dlock.Fence
	EndedAgo time.Duration
	Took     time.Duration
	Outcome  string // a timer.Outcome
	Err      string
	// Stack is the stack of the handler that panicked, up to 4 KiB; "": it did not panic, or the
	// stack was dropped because many runs waited to be written.
	Stack    string
	Attempts int
	By       string // who triggered it; "" if unknown or not triggered
}

// A Query selects the rows that Read returns.
type Query struct {
	Events int // number of newest events, up to MaxEvents
	Runs   int // number of newest runs, of all timers together
	Timers int // number of timer records: failing timers first, then those that ran last
}

// Rows are the answer to a Query.
type Rows struct {
	Hosts  []HostRow
	Leases []LeaseRecord // including ended ones, until they are deleted
	Events []Event       // newest first
	Runs   []Run         // newest first
	Timers []TimerRecord // in any order
}

// A HostRow is the row of a process.
type HostRow struct {
	Heartbeat
	SeenAgo time.Duration // since its last heartbeat
}

// A Retention says how long a Store keeps rows. Config.Retention lists the defaults.
type Retention struct {
	// Hosts is how long a host is kept after its last heartbeat. At least 1 min, and at least three
	// TTLs. Default 90 s: three TTLs, but at least 60 s.
	Hosts time.Duration
	// Leases is how long a lease is kept after its last renewal, its release or its end, whichever
	// is latest. At least 1 min. Default 90 s: three TTLs, but at least 60 s.
	Leases time.Duration
	// Events is how long an event is kept if it is among the newest MaxEvents (1,000). At least 1
	// min. Default 7 days.
	Events time.Duration
	// Runs is how long a run is kept if it is among the newest RunsPerTimer (50) of its timer. At
	// least 1 min. Default 90 days.
	Runs time.Duration
}

// A HostDetail is what a host reports about itself beyond its heartbeat.
type HostDetail struct {
	Timers  []TimerDetail  `json:"timers,omitempty"`
	Runners []RunnerDetail `json:"runners,omitempty"`
	// Refused reports that the host takes no work, because the store belongs to another
	// environment.
	Refused bool `json:"refused,omitempty"`
}

// A TimerDetail is a timer as registered on a host.
type TimerDetail struct {
	Name           string `json:"name"`
	MaxConcurrency int    `json:"max_concurrency"` // -1: no limit
	// MaxPerHost limits the runs at once on the host. -1: no limit. Default 0: MaxConcurrency.
	MaxPerHost int `json:"max_per_host,omitempty"`
	// OnStoreDown is what the host does while the store of the timer's locks does not answer:
	// "skip" starts nothing, "none" means that the timer does not need the store. Default "": the
	// host starts up to MaxPerHost runs without the store.
	OnStoreDown string `json:"on_store_down,omitempty"`
}

// A RunnerDetail is a loop of a process, such as a scheduler, a heartbeat or an elector.
type RunnerDetail struct {
	Kind      string    `json:"kind"`
	Name      string    `json:"name,omitempty"`
	State     string    `json:"state"`
	ChangedAt time.Time `json:"changed_at,omitzero"` // by its host's clock
	Err       string    `json:"err,omitempty"`       // the last error
}
