package cluster

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A Store keeps the registry: rows of hosts, of recorded leases, of events and of runs. Packages
// cluster/sqlregistry and cluster/redisregistry implement it, and NewMemoryStore for one process.
//
// Each call is one round trip, and returns when the deadline of its context has passed. Hosts send
// durations and not times of day (except Run.Tick, which is an instant of the schedule): each "ago"
// is measured from when the call is sent, and the store turns it into an instant of its own clock.
// A call whose reply was lost may be repeated: nothing is then written twice.
//
// Text of any kind may be written. Text that a store cannot keep (NUL, invalid UTF-8) comes back as
// U+FFFD or is left out; all other text comes back unchanged, and names differ if a byte does.
// Package cluster/clustertest checks all this.
type Store interface {
	// Write writes a batch of one host.
	Write(ctx context.Context, b Batch) (Written, error)

	// Read returns the hosts, the recorded leases, the records of timers, and the newest events and
	// runs.
	Read(ctx context.Context, q Query) (Rows, error)

	// Runs returns the last runs of a timer, newest first, up to RunsPerTimer.
	Runs(ctx context.Context, timer string) ([]Run, error)

	// Buckets returns the buckets of a timer, or those of the fleet if timer is "": one for each
	// interval and bin in which a run ended.
	Buckets(ctx context.Context, timer string) ([]Bucket, error)

	// Sweep deletes rows that are older than the retention, at most limit rows of each sort, and
	// returns how many. The record of a timer is deleted when its last run is too old, and buckets
	// when they are older than FineRetention or CoarseRetention. Any host may call it, at any time.
	Sweep(ctx context.Context, r Retention, limit int) (deleted int, err error)
}

// The most that a Store keeps. It deletes older rows in Sweep, or earlier.
const (
	// RunsPerTimer is how many runs of each timer a Store keeps: the newest ones.
	RunsPerTimer = 50
	// MaxEvents is how many events a Store keeps, of the whole fleet: the newest ones.
	MaxEvents = 1_000
)

// MaxBatch is how many rows of each sort (leases, events, runs) a Batch has at most, so that it
// fits into one statement.
const MaxBatch = 500

// A Batch is what one host writes in one call. Each row is in it at most once.
type Batch struct {
	Host   *Heartbeat // nil: nothing about the host
	Leases []LeaseRecord
	Events []Event
	Runs   []Run

	// Timers and Buckets summarize Runs. A Store counts them once, even if a batch comes several
	// times: only if Number is higher than that of each batch of Host that was counted before. So a
	// batch that is sent again has the same Number, and no other runs. Nothing is counted if the
	// store has no row of Host when the batch comes, if there is no Host, or if a later heartbeat
	// has overtaken the batch.
	Number  int64 // 0: nothing is to be counted
	Timers  []TimerRecord
	Buckets []Bucket
}

// Written is the answer to a Batch.
type Written struct {
	// At is when the store received the batch, by its own clock. The host uses it only to learn how
	// far its own clock is off. Zero: the store does not say.
	At time.Time
	// HostUnknown: Host had no Detail, and there is no row, because it was deleted or the
	// registry was emptied. Nothing was written about the host, and nothing of the batch was
	// counted: the host has to be sent with its Detail, and then Timers and Buckets with Runs.
	HostUnknown bool
}

// A Heartbeat says that a process is alive. A Store ignores one with a shorter UpFor than the last
// one, because it has come late: otherwise it could bring back a process that has Left.
type Heartbeat struct {
	Holder      dlock.Holder // the key of the row
	Environment string
	AppVersion  string
	Version     string        // of tickslot
	UpFor       time.Duration // since the process began
	ClockOffset time.Duration // its wall clock minus the store's, as last measured
	TTL         time.Duration // without another heartbeat for this long it is suspect, for twice as long gone
	// Detail is a HostDetail as JSON; nil: unchanged.
	Detail json.RawMessage
	// Left: the process has stopped cleanly, so that it is gone immediately.
	Left bool
}

// A LeaseRecord is the state of a lease as its holder knows it. The row's key is the Name, and the
// Slot of a semaphore: a mutex and a semaphore of one name have different rows.
//
// Of the records of one grant (Holder and Grant are equal) the last counts, but a row that is
// released stays released. The row of another grant is replaced
//   - if both have a fence: by the higher fence, whatever else the two records say. So a record
//     that comes late does not replace the row of the next holder.
//   - else by a lease that is live (not Released, and ExpiresIn is positive) if the row is released
//     or has ended by the store's clock.
//   - else by the grant that was acquired last.
//
// Without fences, a late record may replace the row of the next holder. The longer it was on its
// way, the later its lease seems to be acquired; and if the lease of the next holder is over when
// it arrives, it always replaces it. The registry then names the wrong holder until the ExpiresIn
// of the late record has passed, or its lease is written as Released. The next record of the real
// holder takes the row back.
type LeaseRecord struct {
	Name       string
	Slots      int // 0: a mutex
	Slot       int
	Kind       string
	Holder     dlock.Holder
	Fence      dlock.Fence   // 0: the store of the lock gives none
	Grant      string        // distinguishes the grants of one holder; not the token, which is a secret
	HeldFor    time.Duration // since it was acquired
	RenewedAgo time.Duration // since it was acquired or extended last
	ExpiresIn  time.Duration // from now; negative: it has ended
	Released   bool          // RenewedAgo ago
}

// An Event is something that happened to a lease or a host. Its ID makes it unique.
type Event struct {
	ID     string
	Kind   EventKind
	Name   string // of the lease; "" of a host
	Slot   int    // -1: it is about none
	Fence  dlock.Fence
	Holder dlock.Holder // the process that it happened to
	Text   string       // more, for people
	Ago    time.Duration
}

// An EventKind says what happened.
type EventKind string

const (
	EventAcquired   EventKind = "acquired"    // a lease was acquired
	EventReleased   EventKind = "released"    // its holder released it
	EventLost       EventKind = "lost"        // its holder lost it
	EventExpired    EventKind = "expired"     // the next holder found that it had not been released
	EventRevoked    EventKind = "revoked"     // an operator revoked it
	EventHostJoined EventKind = "host_joined" // a process has started
	EventHostLeft   EventKind = "host_left"   // a process has stopped cleanly
	EventHostGone   EventKind = "host_gone"   // a process has been silent for two TTLs
	// EventHostRefused: a process takes no work, because the store belongs to another environment.
	EventHostRefused EventKind = "host_refused"
	EventOperator    EventKind = "operator" // an operator changed something: Text says who, what and why
)

// A Run is a run of a timer that has ended. Its ID makes it unique.
type Run struct {
	ID       string
	Timer    string
	Holder   dlock.Holder
	Tick     time.Time // by the schedule; zero: it was triggered
	Slot     int       // -1: it ran without one
	Fence    dlock.Fence
	EndedAgo time.Duration
	Took     time.Duration
	Outcome  string // a timer.Outcome
	Err      string
	Attempts int
	By       string // who triggered it; "": not known, or it was not triggered
}

// A Query selects the rows that Read returns.
type Query struct {
	Events int // how many of the newest events, up to MaxEvents
	Runs   int // how many of the newest runs, of all timers together
	Timers int // how many records of timers: those that fail come first, then those that ran last
}

// Rows are the answer to a Query.
type Rows struct {
	Hosts  []HostRow
	Leases []LeaseRecord // ended ones included, until they are deleted
	Events []Event       // newest first
	Runs   []Run         // newest first
	Timers []TimerRecord // in any order
}

// A HostRow is the row of a process.
type HostRow struct {
	Heartbeat
	SeenAgo time.Duration // since its last heartbeat
}

// A Retention is how long a Store keeps rows. The defaults are those of Config.Retention.
type Retention struct {
	// Hosts is how long a host is kept after its last heartbeat. At least 1 min, and at least three
	// TTLs. Default 90 s: three TTLs, but at least 60 s.
	Hosts time.Duration
	// Leases is how long a lease is kept after its last renewal, its release or its end, whichever
	// came last. At least 1 min. Default 90 s: three TTLs, but at least 60 s.
	Leases time.Duration
	// Events is how long an event is kept, if it is one of the newest MaxEvents (1,000). At least
	// 1 min. Default 7 days.
	Events time.Duration
	// Runs is how long a run is kept, if it is one of the newest RunsPerTimer (50) of its timer. At
	// least 1 min. Default 90 days.
	Runs time.Duration
}

// A HostDetail is what a host reports about itself in addition to being alive.
type HostDetail struct {
	Timers  []TimerDetail  `json:"timers,omitempty"`
	Runners []RunnerDetail `json:"runners,omitempty"`
	// Refused: it takes no work, because the store belongs to another environment.
	Refused bool `json:"refused,omitempty"`
}

// A TimerDetail is a timer as it is registered on its host.
type TimerDetail struct {
	Name           string `json:"name"`
	MaxConcurrency int    `json:"max_concurrency"` // -1: no limit
	// MaxPerHost limits the runs at once on the host. -1: no limit. Default 0: MaxConcurrency.
	MaxPerHost int `json:"max_per_host,omitempty"`
	// OnStoreDown is what the host does while the store of the timer's locks does not answer: "skip"
	// starts nothing, "none" means that the timer does not need the store. Default "": the host
	// starts up to MaxPerHost runs without the store.
	OnStoreDown string `json:"on_store_down,omitempty"`
}

// A RunnerDetail is a loop of a process: a scheduler, a heartbeat, a leader and so on.
type RunnerDetail struct {
	Kind      string    `json:"kind"`
	Name      string    `json:"name,omitempty"`
	State     string    `json:"state"`
	ChangedAt time.Time `json:"changed_at,omitzero"` // by its host's clock
	Err       string    `json:"err,omitempty"`       // the last error
}
