package durable

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// NoLimit turns a limit off: MaxRunTime, MaxElapsedTime, MaxCrashes, CatchUp.Window, MaxDueAge,
	// or a retention. (0 stands for the default.)
	NoLimit = -1
	// NoJitter turns Config.PollJitter off. (0 stands for the default.)
	NoJitter = -1
)

// Defaults of a Config.
const (
	DefaultMaxRuns    = 16  // Config.MaxRuns
	DefaultPollJitter = 0.2 // Config.PollJitter

	defaultTTL           = 30 * time.Second // Config.TTL
	defaultPollInterval  = 5 * time.Second  // Config.PollInterval
	defaultSweepInterval = time.Minute      // Config.SweepInterval
	defaultCallTimeout   = 5 * time.Second  // Config.CallTimeout, or a third of TTL if that is shorter
	defaultDrainTimeout  = 30 * time.Second // Config.DrainTimeout
	defaultMaxDueAge     = 5 * time.Minute  // Config.MaxDueAge
	defaultMaxCrashes    = 5                // Config.MaxCrashes
)

// Defaults of HandlerOptions.
const (
	defaultMaxRunTime     = time.Hour   // HandlerOptions.MaxRunTime
	defaultMaxElapsedTime = 21 * day    // Retry.MaxElapsedTime
	defaultFirstWait      = time.Second // Retry.FirstWait, or MaxWait if that is shorter
	defaultMaxWait        = time.Hour   // Retry.MaxWait, or FirstWait if that is longer
)

// CancelGrace is how long Run waits after DrainTimeout for handlers to return, once it has ended
// their contexts.
const CancelGrace = 5 * time.Second

// Config has the settings that all handlers of a worker share. The zero value is fine: 0 stands for
// the default of each field. NewWorker returns all faults of the settings at once.
type Config struct {
	// Name identifies this worker to operators, in rows, logs and attempts. Two workers with the
	// same name do no harm, because a run belongs to an attempt, not to a name. At most 200 bytes
	// (MaxNameLen) of text without control characters. Default: host name, process id and a random
	// part.
	Name string

	// MaxRuns is how many runs of all handlers may be in progress at once on this worker. Raise it
	// for handlers that mostly wait; lower it for handlers that need much CPU or memory. 1 to
	// 10,000. Default 16.
	MaxRuns int

	// MaxActive is how many runs of all handlers may be in progress at once in the fleet. If
	// workers have different values, as during a rolling deploy, their total never exceeds the
	// largest value. With a limit, workers claim one at a time. 1 to 1,000,000. Default 0: no
	// limit.
	MaxActive int

	// ClaimBatch is the maximum number of runs that one statement claims. The answer contains their
	// payloads and must arrive within CallTimeout. So a statement stops claiming after payloads of
	// 4 MiB, and after a statement that took too long, the next claims half as many. Lower
	// ClaimBatch if runs are few and long, so that a worker leaves more of them to others. 1 to
	// 10,000. Default MaxRuns.
	ClaimBatch int

	// TTL is how long the runs of a dead worker stay with it before other workers may reclaim them.
	// It does not limit how long a run may take. With a longer TTL, runs survive a longer outage of
	// the database. A live worker renews the leases of all its runs every TTL/3, in one statement.
	// If no renewal succeeds for two thirds of TTL, the worker claims nothing until one does, even
	// if it has lost all its leases. 1 s to 24 h, and at least three times CallTimeout. Default 30
	// s.
	TTL time.Duration

	// PollInterval is how often a worker polls for runs and ticks without a notification. A worker
	// also polls when the next run or tick that it knows of is due, and within 6 s after a failed
	// poll. An idle worker makes three calls per interval and four more per minute. With the
	// default, that is 40 calls per minute, which are 185 statements on Postgres. 1 ms to 24 h.
	// Default 5 s.
	PollInterval time.Duration

	// PollJitter is the share of PollInterval, or of the three intervals below, by which each pause
	// is longer or shorter at random, so that workers do not poll at the same time. Up to 0.9;
	// NoJitter turns it off. Default 0.2: each pause is 80 to 120 % of its interval.
	PollJitter float64

	// MaterializeInterval, ClaimInterval and ReclaimInterval replace PollInterval for one loop
	// each: the loops that look for due ticks, for due runs, and for expired leases. 1 ms to 24 h.
	// Default PollInterval.
	MaterializeInterval time.Duration
	ClaimInterval       time.Duration
	ReclaimInterval     time.Duration

	// SweepInterval is how often, on average, a worker deletes rows that are older than Retention
	// allows. 1 ms to 24 h. Default 1 min.
	SweepInterval time.Duration

	// Retention is how long rows are kept. Default: the default of each of its fields.
	Retention Retention

	// CallTimeout bounds every call to the database. 1 ms to TTL/3. Default 5 s, or TTL/3 if that
	// is shorter.
	CallTimeout time.Duration

	// PreStopDelay is how long Run continues after its context has ended, while Ready already
	// fails, so that load balancers stop sending requests. At most 24 h. Default 0.
	PreStopDelay time.Duration

	// DrainTimeout is how long Run then waits for handlers to return before it ends their contexts
	// (ErrDraining). The worker gives their runs back, which uses up no attempt. After that, Run
	// waits for another CancelGrace (5 s). 1 ms to 365 days. Default 30 s.
	DrainTimeout time.Duration

	// MaxCrashes is the number of attempts with a lost lease after which a run becomes a dead
	// letter, because the run may be killing its workers. An attempt counts even if the worker lost
	// the answer to its claim and did not call the handler. A Requeue resets the count. 1 to 1,000;
	// NoLimit: any number. Default 5.
	MaxCrashes int

	// MaxDueAge is how long a run or a tick may be due before the check "runs-on-time" fails: see
	// Worker.Checks. 1 ms to 365 days; NoLimit: the check never fails. Default 5 min.
	MaxDueAge time.Duration

	// MaxDead is how many dead letters there may be before the check "few-dead-runs" fails. Default
	// 0: any number.
	MaxDead int

	// Logger gets changes of the database's state, lost leases, failed attempts, reclaimed runs and
	// dead letters. At Debug, it also gets each run and each cycle: see "Lines in the log" in the
	// package documentation. If it panics, the line is lost. Default slog.Default().
	Logger *slog.Logger

	// Hooks report what happens on this worker. They are called on a separate goroutine. Default:
	// none.
	Hooks Hooks

	// Middleware wraps every handler; the first is the outermost. None may be nil. Default: none.
	Middleware []Middleware

	// Registerer is where NewWorker registers the worker's metrics, whose names begin with
	// tickslot_durable_. They are unregistered when Run returns. Default nil: no metrics.
	Registerer prometheus.Registerer
}

// Retention is how long rows are kept. NoLimit keeps them forever.
type Retention struct {
	// Succeeded is how long a successful run is kept after its end. At least 1 min. Default 7 days.
	Succeeded time.Duration
	// Dead is how long a dead letter is kept after its end. At least 1 min. Default 90 days.
	Dead time.Duration
	// Canceled is how long a canceled run is kept after its end. At least 1 min. Default 7 days.
	Canceled time.Duration
	// Unseen is how long schedules and handlers are kept after no worker has them any more. A
	// paused schedule or handler stays until it is resumed. A handler whose limit was set at run
	// time stays until the limit is reset. At least 10 min. Default 30 days.
	Unseen time.Duration
}

// A Handler does the work of a run. If it returns nil, the run has succeeded, even if its context
// ended because the worker shuts down or lost the lease. So return an error if work is left. After
// an error that Permanent has not marked, the run is retried according to HandlerOptions.Retry.
type Handler func(ctx context.Context, run *Run) error

// A Middleware wraps every handler to do something before, after or around each attempt. Handle
// calls it once for each handler.
type Middleware func(next Handler) Handler

// HandlerOptions are the settings of a handler. The zero value is fine. Worker.Check and Worker.Run
// return all faults.
type HandlerOptions struct {
	// MaxConcurrency is how many runs of the handler may be in progress at once in the fleet. If
	// workers have different values, as during a rolling deploy, their total never exceeds the
	// largest value. A Control can override it at run time.
	//
	// A worker first takes up to its share, which is MaxConcurrency divided by the number of
	// workers. Beyond its share, it takes only runs that the others leave. A worker counts while it
	// has room and polls for runs, until two of its poll intervals after its last poll. For runs
	// that have been due for less than a poll interval, workers that are only registered count as
	// well.
	//
	// 1 to 10,000. Default 0: no limit.
	MaxConcurrency int

	// MaxPerPartition is how many runs of the handler with the same TriggerOptions.Partition, such
	// as those of one tenant, may be in progress at once in the fleet. A full partition does not
	// delay other partitions, no matter how many runs it has queued. Runs without a Partition are
	// not counted. If workers have different values, their total never exceeds the largest value. A
	// claim looks at up to 500 partitions, and the next claim continues after them. So with
	// thousands of full partitions, a few polls may pass before a run of another partition starts.
	// 1 to 10,000. Default 0: no limit.
	MaxPerPartition int

	// Rate and Per bound how many attempts start in the fleet: at most Rate within any period of
	// length Per, by the database's clock. Set both or neither.
	//
	// Every attempt counts once, when it is claimed. That includes retries, attempts that are given
	// back, and attempts whose worker dies before it calls the handler. The attempt begins when the
	// answer to the claim arrives, up to CallTimeout later. Until the next start is allowed, due
	// runs stay queued; workers poll again at that time. With a Rate over 60, a start may count for
	// up to a sixtieth of Per longer. Pausing a handler or deleting runs does not take back starts
	// that were counted. A database restored from a backup lacks the starts after that backup.
	//
	// Workers with different rates count the same starts, each against its own rate. So their total
	// never exceeds the larger rate.
	//
	// Rate is 1 to 1e9. Per is 100 ms to 30 days. Default 0: starts are not limited.
	Rate int
	Per  time.Duration

	// MaxRunTime is how long an attempt may take. Then its context ends (ErrMaxRunTime), and the
	// attempt has failed, no matter what the handler returns. If the handler ignores the end of its
	// context for CancelGrace, the worker stops renewing the lease. When the lease has expired,
	// another worker gets the run. At least 1 ms; NoLimit: any time. Default 1 h.
	MaxRunTime time.Duration

	// Retry decides when another attempt follows a failed one. Default: the default of each of its
	// fields.
	Retry Retry
}

// A Retry decides how often and when a failed run is tried again. A waiting run is queued and holds
// no resources: any worker may run the next attempt.
type Retry struct {
	// MaxElapsedTime is how long a run is tried before it becomes a dead letter, counted from the
	// start of its first failed attempt. The last attempt begins when this time is over. A Requeue
	// restarts the time. At least 1 ms; NoLimit: forever, or until MaxAttempts are used up. Default
	// 21 days.
	MaxElapsedTime time.Duration

	// MaxAttempts is the maximum number of attempts before a run becomes a dead letter. Attempts
	// that lost their lease count. Attempts that a worker gave back when it shut down do not. 1 to
	// 1,000; with 1 there is no retry. Default 0: any number.
	MaxAttempts int

	// FirstWait is the wait before the second attempt. Each further wait is twice as long as the
	// one before, up to MaxWait. Attempts that do not count (those given back, and those before a
	// Requeue) do not lengthen the wait. Each wait is shortened at random by up to half. 1 ms to 24
	// h. Default 1 s, or MaxWait if that is shorter.
	FirstWait time.Duration

	// MaxWait is the longest wait. At least FirstWait, at most 24 h. Default 1 h, or FirstWait if
	// that is longer.
	MaxWait time.Duration
}

// ScheduleOptions are the settings of a schedule. The zero value is fine. Worker.Check and
// Worker.Run return all faults.
type ScheduleOptions struct {
	// CatchUp decides what happens to ticks that came due while no worker was running. Default: one
	// run for all of them (CatchUpOnce).
	CatchUp CatchUp

	// Payload is passed to the handler with each run. At most MaxPayloadLen (1 MiB); a longer one
	// is refused with ErrPayloadTooLong. Default: none.
	Payload []byte

	// Priority orders the schedule's runs among all runs that are due. Default PriorityNormal.
	Priority Priority
}

// A CatchUp decides about missed ticks of a schedule. Ticks are missed if they were not queued when
// they came due, because no worker that has the schedule was running. A tick counts as missed if a
// later one is due as well, or if it is more than LateAfter (1 min) late. Ticks that come due
// during a pause count as paused and are not caught up.
type CatchUp struct {
	// Policy says which missed ticks run. Default CatchUpOnce.
	Policy CatchUpPolicy

	// Max is the maximum number of missed ticks that CatchUpBackfill queues. It queues the latest
	// and skips the others. Setting Max with another Policy is a fault. 1 to 10,000. Default 100.
	Max int

	// Window is how old a missed tick may be to run. Older ones are skipped. NoLimit is the same as
	// 0. Default 0: any age.
	Window time.Duration
}

// LateAfter is how late a tick is materialized before it counts as missed.
const LateAfter = time.Minute

// A CatchUpPolicy decides about missed ticks.
type CatchUpPolicy uint8

const (
	// CatchUpOnce queues one run for all missed ticks: the run of the latest. A tick that comes due
	// while a run of the schedule waits for its first attempt is coalesced with that run, too.
	CatchUpOnce CatchUpPolicy = iota
	// CatchUpBackfill queues a run for each missed tick, up to CatchUp.Max, and for each tick that
	// comes due, whether or not other runs wait.
	CatchUpBackfill
	// CatchUpSkip queues no run for missed ticks, and continues with the next tick. A tick that
	// comes due while a run of the schedule waits for its first attempt is coalesced with that run.
	CatchUpSkip
)

// Priority orders due runs: runs with a higher priority are claimed first. A smaller number is a
// higher priority, also in JSON and in the database.
type Priority int8

// The priorities.
const (
	PriorityHigh   Priority = -1 // claimed before all others
	PriorityNormal Priority = 0
	PriorityLow    Priority = 1 // claimed after all others
)
