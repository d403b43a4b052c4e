// Package store is what a durable.Worker asks of a database, and the types of the answers. Package
// postgres and package sqlite implement it; package storetest checks that they keep to it.
//
// All instants are those of the database's clock, in whole microseconds. Every method is one
// transaction, done or not done. After an error the caller does not know which, and may call again:
// what was done already is then not done twice. Methods return when their context ends. Errors have
// no prefix "durable:", which package durable adds. An error matches dlock.ErrSetup if the database
// answers, but cannot serve until somebody sets it up right: a table or a right is missing, or the
// tables are older than this version needs.
package store

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Store keeps schedules, runs and attempts.
type Store interface {
	// String is "postgres" or "sqlite".
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

// MaxAhead is how far in the future of the database an instant may lie that it has noted. What lies
// further was noted while its clock was ahead.
const MaxAhead = 5 * time.Second

// MaxPer is the longest Handler.Per. Nothing forgets a start before.
const MaxPer = 30 * 24 * time.Hour

// Worker is what the loops of a worker call.
type Worker interface {
	// Register says which handlers and schedules a worker has, and marks them as seen now; without
	// takeOver, a schedule that was seen within half a minute may be left as it is. A schedule that
	// is new gets a row without a next tick. One whose Spec differs from that of the row takes the
	// row over if takeOver is set, which a worker sets when it starts: the row's NextSpec then
	// differs from its Spec until the next Materialize. Without takeOver the row stays as it is,
	// and such a worker does not materialize it.
	//
	// A schedule that was seen more than MaxAhead in the future is of a clock that was ahead. It is
	// seen now, its NextSpec differs from its Spec likewise, so that its next tick is planned
	// again, and a pause that had ended before it was seen stays ended.
	Register(ctx context.Context, worker string, handlers []Handler, schedules []Schedule, takeOver bool) error

	// Due returns the schedules that need a Plan, limit of them at most: first those that are new
	// or have another Spec than NextSpec, by name, then those with a tick that is due, by NextDueAt
	// and name. One whose last tick is over needs none. It begins behind a schedule that an earlier
	// call has returned last, as that was then; the zero value: with the first. However many need a
	// plan, a call takes no longer than its limit says, and no locks.
	Due(ctx context.Context, after DueSchedule, limit int) (Due, error)

	// Materialize carries out plans, all or none, each only if its schedule still is as Due has
	// returned it, with the same pause, and no other transaction has it locked (FOR UPDATE SKIP
	// LOCKED): inserts the runs, moves the schedule forward, and counts its ticks. A run that a
	// unique index refuses, because the tick has its run already or a run of the schedule still
	// waits, counts as coalesced. It returns what came of each plan that was carried out; the
	// others were left to other workers.
	Materialize(ctx context.Context, plans []Plan) ([]Materialized, error)

	// Claim takes runs that are due, of the handlers that are named, most urgent first: by
	// priority, then RunAt, then ID. They are running then, with one more attempt, leased to the
	// worker. Rows that another transaction has locked are passed over, however many they are. At
	// no time do more runs of a handler than its MaxConcurrency, nor more than MaxActive of all
	// handlers, have the state running: the rows of the limits are locked before runs are counted.
	// If another transaction keeps such a row locked, nothing is claimed that it limits, and the
	// rest is. The same holds for MaxPerPartition, and a partition that has as many running hides
	// no run of another one. Rows of a partition that others have locked take room of that
	// partition.
	//
	// Of a handler with a MaxConcurrency, or an override of it, a worker has no more than its
	// share, if it names its Patience: see Peers.Share.
	//
	// Of a handler with a Rate, no more runs are claimed within any Per, wherever that begins. What
	// counts is every claim by a worker with a Rate, whatever becomes of the run.
	Claim(ctx context.Context, request ClaimRequest) (Claimed, error)

	// Renew extends the leases of runs that this worker still has. What is missing in the answer is
	// no longer its own.
	Renew(ctx context.Context, worker string, runs []RunKey, ttl time.Duration) ([]Renewed, error)

	// Finish writes the results of attempts and a row for each attempt. Of a run, the rows of the
	// first FirstAttempts and the latest LastAttempts attempts are kept, here
	// and by Reclaim. It waits for no row that
	// another transaction has locked, so that this costs no other run. A run that somebody has
	// canceled is not queued again, but canceled.
	Finish(ctx context.Context, worker string, results []Result) (Finished, error)

	// Reclaim takes up to limit runs whose lease has expired from their workers: an attempt with
	// OutcomeLeaseLost, and then canceled if somebody has asked for that, dead if that was the last
	// attempt, or the last of maxCrashes (0: any number) that may end so, or else queued again, due
	// at once.
	Reclaim(ctx context.Context, limit, maxCrashes int) ([]Reclaimed, error)

	// Sweep deletes up to limit runs, with their attempts, that ended longer ago than the retention
	// of their state, and schedules and handlers that no worker has had for Retention.Unseen,
	// unless they are paused or have a limit that was set. 0 keeps them forever.
	Sweep(ctx context.Context, retention Retention, limit int) (deleted int, err error)

	// Stats returns what health and metrics show. A schedule that no worker has registered for so
	// long has none any more, and is not overdue.
	Stats(ctx context.Context, unseen time.Duration) (Stats, error)

	// Notify wakes the workers of other processes, if the database can. Listen calls woken whenever
	// somebody does, and once after each connection it makes, until ctx ends or it fails. Neither
	// is ever needed: a worker also polls.
	Notify(ctx context.Context) error
	Listen(ctx context.Context, woken func()) error
}

// Client is what programs call that trigger and steer runs.
type Client interface {
	// Insert queues runs that are triggered, in the caller's transaction or in one of its own
	// (nil), and returns what came of each, in their order. A run whose Key is not empty is not
	// fresh if the Key belongs to a run of the handler: ID is that run's then. If the Key belongs
	// to that run until its first attempt begins, no claim takes it before the caller's
	// transaction has ended.
	Insert(ctx context.Context, tx Tx, runs ...NewRun) ([]Inserted, error)

	// Cancel ends a run: one that is queued at once, one that is running when its worker next
	// renews. It returns the state the run had: "" if there is none.
	Cancel(ctx context.Context, id int64, by Cause) (State, error)

	// Requeue looks at up to limit dead and canceled runs, the newest first, and queues them again,
	// with the attempts that their handler allows beyond those they have had. It returns how many,
	// and Filter.BeforeID for the next call; 0: there are no more.
	Requeue(ctx context.Context, which Filter, by Cause, limit int) (n int, beforeID int64, err error)

	// SetHandler changes the overrides of a handler, SetSchedule those of a schedule. They count
	// from when the call returns: what is claimed afterwards keeps to them. They need not be
	// registered. "" is the name of all handlers together, of which only MaxConcurrency counts. A
	// pause of a schedule that replaces one in force keeps the beginning of that one. Resuming sets
	// the end of the pause to now and keeps its beginning, so that ticks which came due during it
	// still count as paused.
	SetHandler(ctx context.Context, name string, change Override) error
	SetSchedule(ctx context.Context, name string, change Override) error

	// Forget deletes the row of a schedule, and returns false if there is none.
	Forget(ctx context.Context, schedule string) (bool, error)
}

// Reader is what people look at.
type Reader interface {
	// Runs returns runs without their payload, the newest first.
	Runs(ctx context.Context, which Filter, limit int) ([]Run, error)
	// Run returns one run with its payload, and its attempts, the first first. ok is false if there
	// is none.
	Run(ctx context.Context, id int64) (run Run, attempts []Attempt, ok bool, err error)
	Schedules(ctx context.Context) ([]ScheduleRow, error)
	Handlers(ctx context.Context) ([]HandlerRow, error)

	// NextQueued returns the first queued run with an ID above after, as a transaction of the
	// caller sees it: ID, Handler, Key, Payload, RunAt, Priority, By and TraceParent. ok is false
	// if there is none. It is for tests of users.
	NextQueued(ctx context.Context, tx Tx, after int64) (run Run, ok bool, err error)
}

// Tx is a transaction of the caller, in the words that database/sql and pgx share.
type Tx interface {
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// Row is the answer to Tx.QueryRow.
type Row interface{ Scan(dest ...any) error }

// State is that of a run.
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
	OutcomeCanceled    Outcome = "canceled"    // somebody canceled the run
	OutcomeInterrupted Outcome = "interrupted" // its worker shut down and gave it back: costs no attempt
	OutcomeLeaseLost   Outcome = "lease_lost"  // its lease expired
)

// Cause is who does something, and why.
type Cause struct{ By, Note string }

// Handler is a handler that a worker has.
type Handler struct {
	Name            string
	MaxConcurrency  int // runs at once in the fleet; 0: any number
	MaxPerPartition int // the same of those with the same Partition, unless that is ""; 0: any number
	MaxAttempts     int // 0: any number
	Rate            int // starts within any Per in the fleet; 0: any number
	Per             time.Duration
}

// Schedule is a schedule that a worker has.
type Schedule struct {
	Name, Handler string
	Spec          string // what determines its ticks, and who handles them
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
	// The latest pause, also if it is over: a tick is of it from PausedAt on, and before
	// PausedUntil. Zero: there was none.
	PausedAt, PausedUntil time.Time
}

// Equal reports whether a row is as it was.
func (d DueSchedule) Equal(other DueSchedule) bool {
	return d.Name == other.Name && d.Spec == other.Spec && d.NextSpec == other.NextSpec &&
		d.NextDueAt.Equal(other.NextDueAt) && d.PausedAt.Equal(other.PausedAt) &&
		d.PausedUntil.Equal(other.PausedUntil)
}

// Plan says what becomes of the ticks of a schedule.
type Plan struct {
	Schedule DueSchedule // as Due returned it
	Handler  string
	Runs     []NewRun
	Last     time.Time // the latest tick that it accounts for; zero: none
	Next     time.Time // the next tick; zero: none forever
	// Ticks that get no run, by reason.
	Coalesced, Skipped, PausedTicks int64
}

// Materialized is what came of a plan.
type Materialized struct {
	Schedule string
	Queued   int64 // runs that were inserted
	// Coalesced has those of the plan and the runs that a unique index refused.
	Coalesced, Skipped, PausedTicks int64
}

// NewRun is a run to insert.
type NewRun struct {
	Handler     string
	Schedule    string    // "": triggered by hand
	DueAt       time.Time // the tick; zero: triggered by hand
	Backfill    bool      // may wait beside others of its schedule
	RunAt       time.Time // zero: after RunIn
	RunIn       time.Duration
	Priority    int // smaller is more urgent
	MaxAttempts int // 0: what the handler says
	Key         string
	KeyUntil    KeyUntil
	Partition   string        // "": none
	KeyFor      time.Duration // 0: Key belongs to the run until KeyUntil
	Payload     []byte
	By          Cause
	TraceParent string
}

// KeyUntil is until when a key belongs to a run.
type KeyUntil string

// What ends it. A run that is requeued does not get it back.
const (
	KeyForever      KeyUntil = ""
	KeyUntilStarted KeyUntil = "started" // the first claim, or that it is canceled before
	KeyUntilEnded   KeyUntil = "ended"
)

// Inserted is what came of a run that was inserted.
type Inserted struct {
	ID    int64
	Fresh bool // it was queued
}

// ClaimRequest is what a worker can run.
type ClaimRequest struct {
	Worker    string
	Handlers  []Handler
	Limit     int // of Runs, at most
	MaxActive int // runs at once in the fleet, of all handlers; 0: any number
	TTL       time.Duration
	// Patience is how soon the other workers look again; 0: the worker leaves them nothing.
	Patience time.Duration
}

// Claimed is the answer to Store.Claim.
type Claimed struct {
	Now  time.Time
	Runs []Run
	// More is set if runs were left out because the payloads of those above have MaxClaimedBytes.
	More bool
	// Held is set if runs may have been left to other workers, although the limit has room.
	Held bool
	// Locked are the limits whose rows another transaction keeps locked: the names of handlers, and
	// "" for MaxActive.
	Locked []string
	// Next is when the next run of these handlers is due that is not due now, or when the next may
	// start of a handler whose Rate is reached, if that is earlier; zero: none waits.
	Next time.Time
}

// MaxClaimedBytes bounds what one claim has to carry: the run with which the payloads reach it is
// the last.
const MaxClaimedBytes = 4 << 20

// RunKey names a claim of a run: the fence of all that a worker writes. After a restore, or when a
// standby takes over that lacked the last commits, a database gives the same ID and the same number
// of an attempt again, so each claim has a value of its own, too.
type RunKey struct {
	ID      int64
	Attempt int
	Claim   int64 // drawn at random for each Claim; of a run that is not running: the latest
}

// NewClaim draws the value of a claim. It is never 0, which is that of a run without a claim.
func NewClaim() int64 { return 1 + rand.Int64N(math.MaxInt64) }

// Renewed is a run that a worker still has.
type Renewed struct {
	RunKey
	Canceled bool  // somebody has canceled it
	By       Cause // who
}

// Result is how an attempt ended, and what becomes of the run.
type Result struct {
	RunKey
	Outcome Outcome
	State   State // succeeded, dead, canceled, or queued: it is tried again
	Error   string
	RetryIn time.Duration // if it is queued
	Took    time.Duration // from the claim to the end
}

// Finished is the answer to Store.Finish. The results of runs that are in neither list change
// nothing: these were reclaimed.
type Finished struct {
	// Counted are the runs whose result counts: those that were still running with that attempt,
	// and those whose same result an earlier call has written, the answer to which was lost.
	Counted []RunKey
	// Locked are the runs that another transaction has locked. Nothing was written of them, and
	// whether their result counts shows when it is given again.
	Locked []RunKey
}

// Reclaimed is a run that was taken from a worker.
type Reclaimed struct {
	RunKey
	MaxAttempts     int // as Run.MaxAttempts
	Handler, Worker string
	Schedule        string
	Crashes         int  // attempts that ended so, without those before a Requeue
	Dead            bool // that was the last attempt
	Canceled        bool // somebody had asked for that
}

// Retention is how long what has ended is kept.
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
	// An attempt with this number that fails is the last. It includes the attempts that do not
	// count: those before a Requeue, and those that were given back (OutcomeInterrupted). 0: any
	// attempt may be followed by another, or the run was not claimed yet.
	MaxAttempts int
	Uncounted   int // how many attempts do not count
	// FailingSince is when the first attempt began that failed, or whose lease was lost, of those
	// after the latest Requeue; zero: none has. What succeeds in the end keeps it.
	FailingSince time.Time
	Key          string // of the trigger, if it belongs to the run for ever; "": none does
	Partition    string
	Nonce        string // drawn at random when the run was queued
	Payload      []byte
	PayloadLen   int
	By           Cause // who has queued it: by Insert, or later by Requeue
	TraceParent  string
	CanceledBy   Cause // who has asked to cancel it
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

// Override is a change of the overrides of a handler or a schedule. Nil fields stay as they are.
type Override struct {
	PausedUntil    *time.Duration // from now; 0: resume
	MaxConcurrency *int           // 0: nothing starts; -1: as the code says
	By             Cause
}

// Pause is a pause.
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
	MaxConcurrency        int    // of the worker that registered it last, as the next three; 0: any number
	MaxPerPartition       int    // 0: any number
	Rate                  int    // 0: any number
	Per                   time.Duration
	Override              int   // -1: none
	By                    Cause // who set the override
	Pause                 *Pause
	SeenAt                time.Time // by a worker that has it; zero: never
	Queued, Running, Dead int64
}

// Filter selects runs. The zero value selects all.
type Filter struct {
	IDs           []int64
	Handler       string
	Schedule      string
	States        []State
	CreatedBefore time.Time // created before
	BeforeID      int64     // with a smaller ID than this: the next page; 0: from the newest
}

// Stats is what health and metrics show.
type Stats struct {
	Now       time.Time
	OldestDue time.Time // RunAt of the queued run that is due for longest; zero: none
	ByHandler []HandlerStats
	// Overdue is the earliest tick that is due and not materialized, although a worker has its
	// schedule; zero: none.
	Overdue time.Time
}

// HandlerStats are the runs of a handler.
type HandlerStats struct {
	Handler               string
	Queued, Running, Dead int64     // Queued may be counted up to a number only
	OldestDue             time.Time // zero: none is due
	SeenAt                time.Time // by a worker that has it; zero: never
	Paused                bool
}
