// Package store is the contract between a durable.Worker and its database. Packages postgres and
// sqlite implement it, and so does package memory for tests. Package storetest checks that they
// keep it.
//
// All instants are in whole microseconds of the database's clock. Every method is one transaction,
// which is either committed or has no effect. After an error, the caller does not know whether the
// transaction was committed. The caller may repeat the call, and nothing is done twice. Methods
// return when their context ends. Errors do not have the prefix "durable:", which package durable
// adds. An error matches dlock.ErrSetup if the database answers but is not set up correctly: a
// table or a privilege is missing, or the tables are older than this version needs.
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

	// Migrate creates or upgrades the tables, Verify checks them, and Schema returns the statements
	// that Migrate executes. See package sqlmigrate.
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
	Schema() ([]string, error)

	Worker
	Client
	Reader
}

// MaxAhead is how far ahead of the database's clock a stored instant may be. An instant further
// ahead was noted while the clock was ahead.
const MaxAhead = 5 * time.Second

// MaxPer is the longest Handler.Per. Starts are kept for at least that long.
const MaxPer = 30 * 24 * time.Hour

// Worker is the part of a Store that the loops of a worker call.
type Worker interface {
	// Register stores which handlers and schedules a worker has, and marks them as seen now.
	// Without takeOver, a schedule that was seen within half a minute may stay unchanged. A new
	// schedule gets a row without a next tick. A worker sets takeOver when it starts. Then a
	// schedule whose Spec differs from the row's takes over the row. The row's NextSpec differs
	// from its Spec until the next Materialize. Without takeOver, such a row stays unchanged, and
	// this worker does not materialize it.
	//
	// If a schedule was seen more than MaxAhead in the future, the clock was ahead. Then Register
	// marks the schedule as seen now, and makes NextSpec differ from Spec so that its next tick is
	// planned again. A pause that had ended by the time it was seen stays ended.
	Register(ctx context.Context, worker string, handlers []Handler, schedules []Schedule, takeOver bool) error

	// Due returns at most limit schedules that need a Plan: first those that are new or whose Spec
	// differs from NextSpec, by name, then those with a due tick, by NextDueAt and name. A schedule
	// without a further tick needs no plan. If after is zero, Due begins with the first schedule.
	// Otherwise, after is the last schedule that an earlier call returned, and Due begins with the
	// next one. A call takes no locks, and its duration depends on limit, not on how many schedules
	// need a plan.
	Due(ctx context.Context, after DueSchedule, limit int) (Due, error)

	// Materialize carries out plans: it inserts the runs, moves the schedule forward, and counts
	// its ticks. It skips a plan if the schedule or its pause has changed since Due returned it, or
	// if another transaction has locked the row (FOR UPDATE SKIP LOCKED). It carries out all other
	// plans or none. If a unique index refuses a run, because the tick already has its run or a run
	// of the schedule still waits, the tick counts as coalesced. Materialize returns the outcome of
	// each plan that was carried out. The others are left to other workers.
	Materialize(ctx context.Context, plans []Plan) ([]Materialized, error)

	// Claim takes due runs of the named handlers, most urgent first: by priority, then RunAt, then
	// ID. They are then running, with one more attempt, leased to the worker. Claim skips rows that
	// another transaction has locked, no matter how many. At no time are more runs of a handler
	// running than its MaxConcurrency, or more of all handlers than MaxActive, because Claim locks
	// the rows of the limits before it counts runs. If another transaction keeps such a row locked,
	// Claim takes only runs that the row does not limit. The same holds for MaxPerPartition. A full
	// partition does not hide runs of other partitions. Runs that another transaction has locked
	// count towards the limit of their partition.
	//
	// If a handler has a MaxConcurrency or an override of it, a worker with a Patience has no more
	// runs of the handler than its share: see Peers.Share.
	//
	// At most Rate runs of a handler are claimed within any period of length Per, no matter when
	// the period begins. Every claim by a worker with a Rate counts, no matter what happens to the
	// run.
	Claim(ctx context.Context, request ClaimRequest) (Claimed, error)

	// Renew extends the leases of runs that this worker still owns. The worker no longer owns runs
	// that are missing in the answer.
	Renew(ctx context.Context, worker string, runs []RunKey, ttl time.Duration) ([]Renewed, error)

	// Finish writes the results of attempts and a row for each attempt. Like Reclaim, it keeps the
	// rows of a run's first FirstAttempts and latest LastAttempts attempts. It does not wait for
	// rows that another transaction has locked, so that such a row delays no other run. A run whose
	// cancellation was requested is canceled and not queued again.
	Finish(ctx context.Context, worker string, results []Result) (Finished, error)

	// Reclaim takes up to limit runs whose lease has expired from their workers, and ends their
	// attempts with OutcomeLeaseLost. A run whose cancellation was requested is then canceled. A
	// run is dead if this was its last attempt, or if it has lost maxCrashes leases (0: any
	// number). Otherwise the run is queued again, due immediately.
	Reclaim(ctx context.Context, limit, maxCrashes int) ([]Reclaimed, error)

	// Sweep deletes up to limit runs that ended longer ago than the retention of their state, with
	// their attempts. It also deletes schedules and handlers that no worker has had for
	// Retention.Unseen, except paused ones and those with an overridden limit. A retention of 0
	// keeps rows forever.
	Sweep(ctx context.Context, retention Retention, limit int) (deleted int, err error)

	// Stats returns the data for health checks and metrics. A schedule that no worker has
	// registered for unseen counts as having no worker and is not overdue.
	Stats(ctx context.Context, unseen time.Duration) (Stats, error)

	// Notify wakes the workers of other processes, if the database supports notifications. Listen
	// calls woken for each Notify, and once after each new connection, until ctx ends or Listen
	// fails. Correctness does not depend on notifications, because workers also poll.
	Notify(ctx context.Context) error
	Listen(ctx context.Context, woken func()) error
}

// Client is the part of a Store that triggers and controls runs.
type Client interface {
	// Insert queues triggered runs, in the caller's transaction, or in its own if tx is nil. It
	// returns the outcome of each run, in order. If a run's Key is not empty and already belongs to
	// a run of the handler, the outcome is not Fresh, and ID is the ID of that run. If the Key
	// belongs to that run until its first attempt begins, no claim takes that run before the
	// caller's transaction has ended.
	Insert(ctx context.Context, tx Tx, runs ...NewRun) ([]Inserted, error)

	// Cancel ends a queued run immediately, and a running run when its worker next renews. A dead
	// run becomes a canceled run that ended now. Cancel returns the run's state before the call, or
	// "" if there is no such run.
	Cancel(ctx context.Context, id int64, by Cause) (State, error)

	// Requeue visits up to limit dead and canceled runs, newest first, and queues them again with
	// as many more attempts as their handler allows. It returns how many it has queued, and the
	// Filter.BeforeID for the next call, or 0 if there are no more.
	Requeue(ctx context.Context, which Filter, by Cause, limit int) (n int, beforeID int64, err error)

	// SetHandler changes the overrides of a handler. SetSchedule changes the overrides of a
	// schedule. Neither has to be registered. Every claim after the call respects the overrides.
	// The name "" stands for all handlers together, and only MaxConcurrency applies to it. If a
	// schedule is already paused, a new pause keeps the beginning of the first. Resuming sets the
	// end of the pause to now and keeps its beginning, so that ticks that came due during the pause
	// still count as paused.
	SetHandler(ctx context.Context, name string, change Override) error
	SetSchedule(ctx context.Context, name string, change Override) error

	// Forget deletes the row of a schedule and returns false if there is none.
	Forget(ctx context.Context, schedule string) (bool, error)
}

// Reader is the part of a Store that shows its data to people.
type Reader interface {
	// Runs returns runs without their payloads, newest first.
	Runs(ctx context.Context, which Filter, limit int) ([]Run, error)
	// Run returns a run with its payload, and its attempts in order. ok is false if there is no
	// such run.
	Run(ctx context.Context, id int64) (run Run, attempts []Attempt, ok bool, err error)
	Schedules(ctx context.Context) ([]ScheduleRow, error)
	Handlers(ctx context.Context) ([]HandlerRow, error)
	// Flow returns how many runs of each handler were created and ended when.
	Flow(ctx context.Context) (flow.Flow, error)

	// NextQueued returns the first queued run with an ID above after that the caller's transaction
	// sees. It sets only ID, Handler, Key, Payload, RunAt, Priority, By and TraceParent. ok is
	// false if there is none. NextQueued is for users' tests.
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
	OutcomeInterrupted Outcome = "interrupted" // its worker shut down and gave it back, which uses up no attempt
	OutcomeLeaseLost   Outcome = "lease_lost"  // its lease expired
)

// Cause says who makes a change, and why.
type Cause struct{ By, Note string }

// Handler is a handler that a worker has.
type Handler struct {
	Name            string
	MaxConcurrency  int // runs in progress in the fleet; 0: any number
	MaxPerPartition int // likewise for runs with the same nonempty Partition; 0: any number
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
	Next      time.Time // the earliest tick that is not due yet; zero if there is none
}

// DueSchedule is a row that needs a plan.
type DueSchedule struct {
	Name, Spec string
	NextSpec   string    // the Spec for which NextDueAt was computed
	NextDueAt  time.Time // zero if the schedule is new
	// The latest pause, even if it is over. It covers the ticks from PausedAt up to but not
	// including PausedUntil. Zero if there was none.
	PausedAt, PausedUntil time.Time
}

// Equal reports whether two versions of a row are the same.
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
	Last     time.Time // the latest tick that the plan accounts for; zero if none
	Next     time.Time // the next tick; zero if there will be none
	// The numbers of ticks that get no run, by reason.
	Coalesced, Skipped, PausedTicks int64
}

// Materialized is the outcome of a plan.
type Materialized struct {
	Schedule string
	Queued   int64 // runs that were inserted
	// Coalesced counts the coalesced ticks of the plan and the runs that a unique index refused.
	Coalesced, Skipped, PausedTicks int64
}

// NewRun is a run to insert.
type NewRun struct {
	Handler     string
	Schedule    string    // "" if triggered by hand
	DueAt       time.Time // the tick; zero if triggered by hand
	Backfill    bool      // may wait while another run of its schedule waits
	RunAt       time.Time // zero means after RunIn
	RunIn       time.Duration
	Priority    int // smaller is more urgent
	MaxAttempts int // 0 means the handler's limit
	Key         string
	KeyUntil    KeyUntil
	Partition   string        // "": none
	KeyFor      time.Duration // 0 means that Key belongs to the run until KeyUntil
	Payload     []byte
	By          Cause
	TraceParent string
}

// KeyUntil says until when a key belongs to a run.
type KeyUntil string

// When a run gives up its key. A requeued run does not get its key back.
const (
	KeyForever      KeyUntil = ""
	KeyUntilStarted KeyUntil = "started" // until its first claim, or its cancellation before that
	KeyUntilEnded   KeyUntil = "ended"
)

// Inserted is the outcome of inserting a run.
type Inserted struct {
	ID    int64
	Fresh bool // true if this call queued the run
}

// ClaimRequest says what a worker can run.
type ClaimRequest struct {
	Worker    string
	Handlers  []Handler
	Limit     int // maximum number of Runs
	MaxActive int // maximum number of runs of all handlers in progress in the fleet; 0: any number
	TTL       time.Duration
	// Patience is how soon the other workers poll again. If it is 0, the worker leaves them no
	// runs.
	Patience time.Duration
}

// Claimed is the answer to Store.Claim.
type Claimed struct {
	Now  time.Time
	Runs []Run
	// More is true if runs were left out because the payloads of Runs have reached MaxClaimedBytes.
	More bool
	// Held is true if runs may have been left to other workers although the limit has room.
	Held bool
	// Locked are the limits whose rows another transaction keeps locked: the names of handlers, and
	// "" for MaxActive.
	Locked []string
	// Next is when the next run of these handlers becomes due, or when a handler that has reached
	// its Rate may start its next run, whichever is earlier. It is zero if no run waits.
	Next time.Time
}

// MaxClaimedBytes bounds the payloads of one claim. The run whose payload reaches it is the last.
const MaxClaimedBytes = 4 << 20

// RunKey identifies a claim of a run and fences everything that a worker writes. After a restore,
// or after a failover to a standby that lacked the last commits, a database assigns the same ID and
// the same attempt number again. So each claim also has a random value.
type RunKey struct {
	ID      int64
	Attempt int
	Claim   int64 // random for each Claim; the latest value if the run is not running
}

// NewClaim draws the value of a claim. It is never 0, which marks a run without a claim.
func NewClaim() int64 { return 1 + rand.Int64N(math.MaxInt64) }

// Renewed is a run that a worker still owns.
type Renewed struct {
	RunKey
	Canceled bool  // a cancellation was requested
	By       Cause // who requested it
}

// Result says how an attempt ended, and gives the run's next state.
type Result struct {
	RunKey
	Outcome Outcome
	State   State // succeeded, dead, canceled, or queued for another attempt
	Error   string
	RetryIn time.Duration // if State is queued
	Took    time.Duration // from the claim to the end
}

// Finished is the answer to Store.Finish. Runs in neither list were reclaimed, so their results
// change nothing.
type Finished struct {
	// Counted are the runs whose results count. They were still running that attempt, or an earlier
	// call whose answer was lost has written the same result.
	Counted []RunKey
	// Locked are the runs that another transaction has locked. Finish has written nothing for them.
	// To learn whether their results count, call Finish again with them.
	Locked []RunKey
}

// Reclaimed is a run that was taken from a worker.
type Reclaimed struct {
	RunKey
	MaxAttempts     int // see Run.MaxAttempts
	Handler, Worker string
	Schedule        string
	Crashes         int  // attempts with a lost lease since the latest Requeue
	Dead            bool // the lost attempt was the last
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
	DueAt    time.Time // zero if triggered by hand
	Backfill bool
	State    State
	Priority int
	RunAt    time.Time
	// MaxAttempts is the number of the attempt after which a failing run is not tried again. It
	// includes attempts that do not count: those before a Requeue, and those that were given back
	// (OutcomeInterrupted). 0 means that the number is unlimited, or that the run was not claimed
	// yet.
	MaxAttempts int
	Uncounted   int // how many attempts do not count
	// FailingSince is when the first attempt since the latest Requeue that failed or lost its lease
	// began, or zero if there is none. A run that finally succeeds keeps the value.
	FailingSince time.Time
	Key          string // the trigger's key if it belongs to the run forever; otherwise ""
	Partition    string
	Nonce        string // drawn at random when the run was queued
	Payload      []byte
	PayloadLen   int
	By           Cause // who queued the run, with Insert or later with Requeue
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

// Override is a change of the overrides of a handler or a schedule. Nil fields change nothing.
type Override struct {
	PausedUntil    *time.Duration // from now; 0: resume
	MaxConcurrency *int           // 0: no run starts; -1: no override
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
	NextDueAt                               time.Time // zero if there is none, or it is not known yet
	LastDueAt                               time.Time // the latest tick that was accounted for
	SeenAt                                  time.Time // when a worker last registered it
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
	SeenAt                time.Time // when a worker last registered it; zero if none has
	Queued, Running, Dead int64
	HandlerHistory
}

// HandlerHistory is what the runs of a handler have come to, as far as they are kept.
type HandlerHistory struct {
	EndedAt     time.Time // the run that ended last; zero: none is kept
	SucceededAt time.Time // the last success; zero: none is kept
	// Failures is how many runs failed after it: those that are dead, and those that are tried
	// again and were claimed after it. Of each sort no more than MaxFailures are counted.
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
	BeforeID      int64     // with a smaller ID, for the next page; 0 begins with the newest
}

// Stats has the data for health checks and metrics.
type Stats struct {
	Now       time.Time
	OldestDue time.Time // RunAt of the queued run that has been due longest; zero if none
	ByHandler []HandlerStats
	// Overdue is the earliest due tick that is not materialized although a worker has its schedule.
	// It is zero if there is none.
	Overdue time.Time
}

// HandlerStats counts the runs of a handler.
type HandlerStats struct {
	Handler               string
	Queued, Running, Dead int64     // Queued may be counted only up to a maximum
	OldestDue             time.Time // zero if none is due
	SeenAt                time.Time // when a worker last registered it; zero if none has
	Paused                bool
}
