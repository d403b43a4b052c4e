// Package store is the contract between a durable.Worker and its database. Packages postgres and
// sqlite implement it, and package memory for tests; package storetest checks that they keep it.
//
// All instants are of the database's clock, in whole microseconds. Every method is one transaction,
// done or not done. After an error the caller does not know which, and may call again: nothing is
// done twice. Methods return when their context ends. Errors have no prefix "durable:", which
// package durable adds. An error matches dlock.ErrSetup if the database answers but is not set up
// right: a table or a right is missing, or the tables are older than this version needs.
package store

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
)

// Store keeps schedules, runs and attempts.
type Store interface {
	// String returns "postgres" or "sqlite".
	String() string

	// Migrate creates or upgrades the tables, Verify checks them, and Schema returns what Migrate
	// executes. See package sqlmigrate.
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
	Schema() ([]string, error)

	Worker
	Client
	Reader
}

// MaxAhead is how far ahead of the database's clock an instant may be that it has noted. An instant
// further ahead was noted while the clock was ahead.
const MaxAhead = 5 * time.Second

// MaxPer is the longest Handler.Per. No start is forgotten earlier.
const MaxPer = 30 * 24 * time.Hour

// Worker is the part of a Store that the loops of a worker call.
type Worker interface {
	// Register stores which handlers and schedules a worker has, and marks them as seen now;
	// without takeOver, a schedule that was seen within half a minute may stay unchanged. A new
	// schedule gets a row without a next tick. A worker sets takeOver when it starts: then a
	// schedule whose Spec differs from the row's takes over the row, whose NextSpec differs from
	// its Spec until the next Materialize. Without takeOver such a row stays unchanged, and this
	// worker does not materialize it.
	//
	// If a schedule was seen more than MaxAhead in the future, the clock was ahead. It is marked as
	// seen now, its NextSpec likewise made to differ from its Spec so that its next tick is planned
	// again, and a pause that had ended when it was seen stays ended.
	Register(ctx context.Context, worker string, handlers []Handler, schedules []Schedule, takeOver bool) error

	// Due returns at most limit schedules that need a Plan: first those that are new or whose Spec
	// differs from NextSpec, by name, then those with a due tick, by NextDueAt and name. A schedule
	// without a further tick needs no plan. Due begins behind after, the last schedule that an
	// earlier call returned; the zero value: with the first. A call takes no locks, and its time
	// depends on limit, not on how many schedules need a plan.
	Due(ctx context.Context, after DueSchedule, limit int) (Due, error)

	// Materialize carries out plans: it inserts the runs, moves the schedule forward, and counts
	// its ticks. It skips a plan if the schedule or its pause has changed since Due returned it, or
	// if another transaction has the row locked (FOR UPDATE SKIP LOCKED). All other plans are
	// carried out, or none. A run that a unique index refuses, because the tick has its run already
	// or a run of the schedule still waits, counts as coalesced. Materialize returns the outcome of
	// each plan that was carried out; the others are left to other workers.
	Materialize(ctx context.Context, plans []Plan) ([]Materialized, error)

	// Claim takes due runs of the named handlers, most urgent first: by priority, then RunAt, then
	// ID. They are then running, with one more attempt, leased to the worker. Claim passes over
	// rows that another transaction has locked, however many they are. At no time are more runs of
	// a handler running than its MaxConcurrency, or more of all handlers than MaxActive: the rows
	// of the limits are locked before runs are counted. If another transaction keeps such a row
	// locked, Claim takes only runs that the row does not limit. The same holds for
	// MaxPerPartition, and a full partition hides no run of another one. Runs of a partition that
	// others have locked use room of that partition.
	//
	// A worker with a Patience has no more runs than its share of a handler that has a
	// MaxConcurrency, or an override of it: see Peers.Share.
	//
	// At most Rate runs of a handler are claimed within any Per, wherever that begins. Every claim
	// by a worker with a Rate counts, whatever happens to the run.
	Claim(ctx context.Context, request ClaimRequest) (Claimed, error)

	// Renew extends the leases of runs that this worker still owns. It no longer owns those that
	// are missing in the answer.
	Renew(ctx context.Context, worker string, runs []RunKey, ttl time.Duration) ([]Renewed, error)

	// Finish writes the results of attempts and a row for each attempt. Like Reclaim it keeps the
	// rows of a run's first FirstAttempts and latest LastAttempts attempts. It waits for no row
	// that another transaction has locked, so that such a row delays no other run. A run whose
	// cancellation was requested is canceled and not queued again.
	Finish(ctx context.Context, worker string, results []Result) (Finished, error)

	// Reclaim takes up to limit runs whose lease has expired from their workers, and ends their
	// attempts with OutcomeLeaseLost. A run is then canceled if that was requested; dead if this
	// was its last attempt, or the last of maxCrashes (0: any number) that may end so; otherwise
	// queued again, due immediately.
	Reclaim(ctx context.Context, limit, maxCrashes int) ([]Reclaimed, error)

	// Sweep deletes up to limit runs, with their attempts, that ended longer ago than the retention
	// of their state, and schedules and handlers that no worker has had for Retention.Unseen,
	// unless they are paused or have a limit that was set. 0 keeps them forever.
	Sweep(ctx context.Context, retention Retention, limit int) (deleted int, err error)

	// Stats returns what health and metrics show. A schedule that no worker has registered for
	// unseen has no worker any more, and is not overdue.
	Stats(ctx context.Context, unseen time.Duration) (Stats, error)

	// Notify wakes the workers of other processes, if the database has notifications. Listen calls
	// woken for each Notify, and once after each connection it makes, until ctx ends or it fails.
	// Correctness needs neither, because workers also poll.
	Notify(ctx context.Context) error
	Listen(ctx context.Context, woken func()) error
}

// Client is the part of a Store for triggering and controlling runs.
type Client interface {
	// Insert queues triggered runs, in the caller's transaction or in one of its own (nil), and
	// returns the outcome of each, in their order. If a run's Key is not empty and belongs to a run
	// of the handler, it is not fresh, and ID is that run's. If the Key belongs to that run until
	// its first attempt begins, no claim takes that run before the caller's transaction has ended.
	Insert(ctx context.Context, tx Tx, runs ...NewRun) ([]Inserted, error)

	// Cancel ends a queued run immediately, and a running one when its worker next renews. A dead
	// run becomes a canceled one, which ended now. It returns the run's state before the call; "":
	// there is no such run.
	Cancel(ctx context.Context, id int64, by Cause) (State, error)

	// Requeue visits up to limit dead and canceled runs, the newest first, and queues them again,
	// with as many more attempts as their handler allows. It returns how many it has queued, and
	// Filter.BeforeID for the next call; 0: there are no more.
	Requeue(ctx context.Context, which Filter, by Cause, limit int) (n int, beforeID int64, err error)

	// SetHandler changes the overrides of a handler, SetSchedule those of a schedule, which need
	// not be registered. Every claim after the call respects them. "" names all handlers together;
	// only MaxConcurrency applies to it. A pause of a schedule that replaces one in force keeps its
	// beginning. Resuming sets the end of the pause to now and keeps its beginning, so that ticks
	// that came due during it still count as paused.
	SetHandler(ctx context.Context, name string, change Override) error
	SetSchedule(ctx context.Context, name string, change Override) error

	// Forget deletes the row of a schedule, and returns false if there is none.
	Forget(ctx context.Context, schedule string) (bool, error)
}

// Reader is the part of a Store that shows its data to people.
type Reader interface {
	// Runs returns runs without their payloads, the newest first.
	Runs(ctx context.Context, which Filter, limit int) ([]Run, error)
	// Run returns a run with its payload, and its attempts in order. ok is false if there is no
	// such run.
	Run(ctx context.Context, id int64) (run Run, attempts []Attempt, ok bool, err error)
	Schedules(ctx context.Context) ([]ScheduleRow, error)
	Handlers(ctx context.Context) ([]HandlerRow, error)
	// Flow returns how many runs of each handler were created and ended when.
	Flow(ctx context.Context) (flow.Flow, error)

	// NextQueued returns the first queued run with an ID above after, as a transaction of the
	// caller sees it, with only ID, Handler, Key, Payload, RunAt, Priority, By and TraceParent. ok
	// is false if there is none. It is for users' tests.
	NextQueued(ctx context.Context, tx Tx, after int64) (run Run, ok bool, err error)
}

// Tx is a transaction of the caller, reduced to what database/sql and pgx have in common.
type Tx interface {
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// Row is the answer to Tx.QueryRow.
type Row interface{ Scan(dest ...any) error }

// State is the state of a run.
type State string

// The states of a run. A run that is retried is queued again.
const (
	StateQueued    State = "queued"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateDead      State = "dead"
	StateCanceled  State = "canceled"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeOK          Outcome = "ok"
	OutcomeFailed      Outcome = "error"
	OutcomePanicked    Outcome = "panic"
	OutcomeTimedOut    Outcome = "timeout"     // MaxRunTime
	OutcomeCanceled    Outcome = "canceled"    // the run was canceled
	OutcomeInterrupted Outcome = "interrupted" // its worker shut down and gave it back: costs no attempt
	OutcomeLeaseLost   Outcome = "lease_lost"  // its lease expired
)

// Cause says who does something, and why.
type Cause struct{ By, Note string }

// Handler is a handler that a worker has.
type Handler struct {
	Name            string
	MaxConcurrency  int // runs in progress in the fleet; 0: any number
	MaxPerPartition int // the same for runs with the same Partition, unless that is ""; 0: any number
	MaxAttempts     int // 0: any number
	Rate            int // starts within any Per in the fleet; 0: any number
	Per             time.Duration
}

// Schedule is a schedule that a worker has.
type Schedule struct {
	Name, Handler string
	Spec          string // identifies its ticks and their handler
	Text          string // schedule.Describe
}

// Due is the answer to Store.Due.
type Due struct {
	Now       time.Time
	Schedules []DueSchedule
	Next      time.Time // the earliest tick that is not due; zero: none
}

// DueSchedule is a row that needs a plan.
type DueSchedule struct {
	Name, Spec string
	NextSpec   string    // the Spec for which NextDueAt was computed
	NextDueAt  time.Time // zero: the schedule is new
	// The latest pause, even if it is over: it has the ticks from PausedAt on and before
	// PausedUntil. Zero: there was none.
	PausedAt, PausedUntil time.Time
}

// Equal reports whether a row has not changed.
func (d DueSchedule) Equal(other DueSchedule) bool {
	return d.Name == other.Name && d.Spec == other.Spec && d.NextSpec == other.NextSpec &&
		d.NextDueAt.Equal(other.NextDueAt) && d.PausedAt.Equal(other.PausedAt) &&
		d.PausedUntil.Equal(other.PausedUntil)
}

// Plan accounts for the due ticks of a schedule.
type Plan struct {
	Schedule DueSchedule // as Due returned it
	Handler  string
	Runs     []NewRun
	Last     time.Time // the latest tick that it accounts for; zero: none
	Next     time.Time // the next tick; zero: none forever
	// Ticks that get no run, by reason.
	Coalesced, Skipped, PausedTicks int64
}

// Materialized is the outcome of a plan.
type Materialized struct {
	Schedule string
	Queued   int64 // runs that were inserted
	// Coalesced counts those of the plan and the runs that a unique index refused.
	Coalesced, Skipped, PausedTicks int64
}

// NewRun is a run to insert.
type NewRun struct {
	Handler     string
	Schedule    string    // "": triggered by hand
	DueAt       time.Time // the tick; zero: triggered by hand
	Backfill    bool      // may wait beside other runs of its schedule
	RunAt       time.Time // zero: after RunIn
	RunIn       time.Duration
	Priority    int // smaller is more urgent
	MaxAttempts int // 0: the handler's
	Key         string
	KeyUntil    KeyUntil
	Partition   string        // "": none
	KeyFor      time.Duration // 0: Key belongs to the run until KeyUntil
	Payload     []byte
	By          Cause
	TraceParent string
}

// KeyUntil says until when a key belongs to a run.
type KeyUntil string

// The ends of a key. A run that is requeued does not get its key back.
const (
	KeyForever      KeyUntil = ""
	KeyUntilStarted KeyUntil = "started" // its first claim, or its cancellation before that
	KeyUntilEnded   KeyUntil = "ended"
)

// Inserted is the outcome of inserting a run.
type Inserted struct {
	ID    int64
	Fresh bool // it was queued
}

// ClaimRequest says what a worker can run.
type ClaimRequest struct {
	Worker    string
	Handlers  []Handler
	Limit     int // of Runs, at most
	MaxActive int // runs in progress in the fleet, of all handlers; 0: any number
	TTL       time.Duration
	// Patience is how soon the other workers look again; 0: the worker leaves them no runs.
	Patience time.Duration
}

// Claimed is the answer to Store.Claim.
type Claimed struct {
	Now  time.Time
	Runs []Run
	// More is set if runs were left out because the payloads of Runs have reached MaxClaimedBytes.
	More bool
	// Held is set if runs may have been left to other workers, although the limit has room.
	Held bool
	// Locked are the limits whose rows another transaction keeps locked: the names of handlers, and
	// "" for MaxActive.
	Locked []string
	// Next is when the next run of these handlers becomes due, or, if that is earlier, when the
	// next run may start of a handler whose Rate is reached; zero: none waits.
	Next time.Time
}

// MaxClaimedBytes bounds the payloads of one claim: the run with which they reach it is the last.
const MaxClaimedBytes = 4 << 20

// RunKey identifies a claim of a run: it fences everything that a worker writes. After a restore,
// or after a failover to a standby that lacked the last commits, a database assigns the same ID and
// the same attempt number again. So each claim also has a random value.
type RunKey struct {
	ID      int64
	Attempt int
	Claim   int64 // random for each Claim; if the run is not running: the latest
}

// NewClaim draws the value of a claim. It is never 0, which marks a run without a claim.
func NewClaim() int64 { return 1 + rand.Int64N(math.MaxInt64) }

// Renewed is a run that a worker still owns.
type Renewed struct {
	RunKey
	Canceled bool  // a cancellation was requested
	By       Cause // who requested it
}

// Result is how an attempt ended, and the run's next state.
type Result struct {
	RunKey
	Outcome Outcome
	State   State // succeeded, dead, canceled, or queued: it is tried again
	Error   string
	RetryIn time.Duration // if it is queued
	Took    time.Duration // from the claim to the end
}

// Finished is the answer to Store.Finish. Runs in neither list were reclaimed: their results change
// nothing.
type Finished struct {
	// Counted are the runs whose result counts: those that were still running with that attempt,
	// and those whose same result was written by an earlier call whose answer was lost.
	Counted []RunKey
	// Locked are the runs that another transaction has locked. Nothing was written for them. Call
	// Finish again with their results to learn whether they count.
	Locked []RunKey
}

// Reclaimed is a run that was taken from a worker.
type Reclaimed struct {
	RunKey
	MaxAttempts     int // see Run.MaxAttempts
	Handler, Worker string
	Schedule        string
	Crashes         int  // attempts that ended so, without those before a Requeue
	Dead            bool // that was the last attempt
	Canceled        bool // a cancellation was requested
}

// Retention is how long rows are kept.
type Retention struct {
	Succeeded, Dead, Canceled time.Duration
	Unseen                    time.Duration // schedules and handlers
}

// Run is a row of the table of runs.
type Run struct {
	RunKey
	Handler  string
	Schedule string
	DueAt    time.Time // zero: triggered by hand
	Backfill bool
	State    State
	Priority int
	RunAt    time.Time
	// The number of the last attempt, if that fails. It includes the attempts that do not count:
	// those before a Requeue, and those that were given back (OutcomeInterrupted). 0: any attempt
	// may be followed by another, or the run was not claimed yet.
	MaxAttempts int
	Uncounted   int // how many attempts do not count
	// FailingSince is when the first attempt after the latest Requeue began that failed or lost its
	// lease; zero: there is none. A run that succeeds in the end keeps it.
	FailingSince time.Time
	Key          string // of the trigger, if it belongs to the run for ever; "": none does
	Partition    string
	Nonce        string // drawn at random when the run was queued
	Payload      []byte
	PayloadLen   int
	By           Cause // who has queued it: with Insert, or later with Requeue
	TraceParent  string
	CanceledBy   Cause // who requested its cancellation
	Worker       string
	ClaimedAt    time.Time // of the latest attempt
	LeaseUntil   time.Time
	LastError    string
	CreatedAt    time.Time
	FinishedAt   time.Time
}

// Attempt is a row of the table of attempts.
type Attempt struct {
	Attempt    int
	Worker     string
	StartedAt  time.Time
	FinishedAt time.Time
	Outcome    Outcome
	Error      string
}

// Override changes the overrides of a handler or a schedule. Nil fields change nothing.
type Override struct {
	PausedUntil    *time.Duration // from now; 0: resume
	MaxConcurrency *int           // 0: nothing starts; -1: no override
	By             Cause
}

// Pause is a pause of a handler or a schedule.
type Pause struct {
	Until time.Time
	By    Cause
}

// ScheduleRow is a row of the table of schedules.
type ScheduleRow struct {
	Name, Handler, Spec, Text               string
	NextDueAt                               time.Time // zero: none, or not known yet
	LastDueAt                               time.Time // the latest tick that was accounted for
	SeenAt                                  time.Time // by a worker that has it
	Pause                                   *Pause
	Queued, Coalesced, Skipped, PausedTicks int64
}

// HandlerRow is a row of the table of handlers.
type HandlerRow struct {
	Name                  string // "": all handlers together
	MaxConcurrency        int    // from the latest registration, like the next three; 0: any number
	MaxPerPartition       int    // 0: any number
	Rate                  int    // 0: any number
	Per                   time.Duration
	Override              int   // -1: none
	By                    Cause // who set the override
	Pause                 *Pause
	SeenAt                time.Time // by a worker that has it; zero: never
	Queued, Running, Dead int64
	HandlerHistory
}

// HandlerHistory is what the runs of a handler have come to, as far as they are kept.
type HandlerHistory struct {
	EndedAt     time.Time // the run that ended last; zero: none is kept
	SucceededAt time.Time // the last success; zero: none is kept
	// Failures is how many runs failed after it: those that are dead, and those that are tried again
	// and were claimed after it. Of each sort no more than MaxFailures are counted.
	Failures     int64
	FailingSince time.Time // the first of their attempts that failed began, or SucceededAt if that is later
	LastError    string    // of one of them, preferably of one that is tried again
	Outcomes     []State   // of the MaxOutcomes runs that ended last, the oldest first
}

// Bounds of a HandlerHistory.
const (
	MaxOutcomes = 30
	MaxFailures = 1000
)

// OutcomesOf returns the states whose initials are in letters, which has the newest first.
func OutcomesOf(letters string) (states []State) {
	for i := range len(letters) {
		for _, s := range []State{StateSucceeded, StateDead, StateCanceled} {
			if letters[len(letters)-1-i] == s[0] {
				states = append(states, s)
			}
		}
	}
	return states
}

// Filter selects runs. The zero value selects all.
type Filter struct {
	IDs           []int64
	Handler       string
	Schedule      string
	States        []State
	CreatedBefore time.Time // created before
	BeforeID      int64     // with a smaller ID: the next page; 0: from the newest
}

// Stats is what health and metrics show.
type Stats struct {
	Now       time.Time
	OldestDue time.Time // RunAt of the queued run that has been due longest; zero: none
	ByHandler []HandlerStats
	// Overdue is the earliest due tick that is not materialized although a worker has its schedule;
	// zero: none.
	Overdue time.Time
}

// HandlerStats counts the runs of a handler.
type HandlerStats struct {
	Handler               string
	Queued, Running, Dead int64     // Queued may be counted only up to some number
	OldestDue             time.Time // zero: none is due
	SeenAt                time.Time // by a worker that has it; zero: never
	Paused                bool
}
