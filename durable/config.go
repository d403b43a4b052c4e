package durable

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// NoLimit turns a limit off: MaxRunTime, MaxElapsedTime, MaxCrashes, CatchUp.Window, MaxDueAge,
	// or a retention.
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

// CancelGrace is how long Run waits, after DrainTimeout, for handlers whose context it has ended.
const CancelGrace = 5 * time.Second

// Config is what all handlers of a worker share. The zero value is fine.
type Config struct {
	// Name is the name under which operators see this worker, in rows, logs and attempts. Two
	// workers of one name do no harm: a run belongs to an attempt, not to a name. At most 200
	// bytes. Default: host name, process id and a random part.
	Name string

	// MaxRuns is how many runs may be in progress at once on this worker, of all handlers. Raise it
	// for handlers that mostly wait; lower it for those that need the processor or much memory. 1
	// to 10,000. Default 16.
	MaxRuns int

	// MaxActive is how many runs may be in progress at once in the fleet, of all handlers. Workers
	// with different values, as in a rolling deploy, together never exceed the largest. With a
	// limit, claims of all workers are made one after the other. At most 1,000,000. Default 0: any
	// number.
	MaxActive int

	// ClaimBatch is how many runs one statement claims at most. Their payloads come with them, and
	// the answer has to come within CallTimeout: a statement claims no run after payloads of 4 MiB,
	// and one that took too long halves the next. Lower it if runs are few and long, so that a
	// worker leaves more of them to others. 1 to 10,000. Default MaxRuns.
	ClaimBatch int

	// TTL is how long the runs of a dead worker stay with it before others may reclaim them. It has
	// nothing to do with how long a run takes. With a longer one, runs survive a longer outage of
	// the database. A live worker renews the leases of all its runs every TTL/3, in one statement.
	// If no renewal succeeds for two thirds of TTL, it claims nothing until one does, even when it
	// has lost all its leases. At least three times CallTimeout; 1 s to 24 h. Default 30 s.
	TTL time.Duration

	// PollInterval is how often a worker looks for runs and ticks that nobody has announced. It
	// also wakes when the next run or tick it knows of is due, and repeats what has failed within
	// seconds. An idle worker makes three calls per interval, and four a minute besides: with the
	// default 40 a minute, which are 185 statements on Postgres. 1 ms to 24 h. Default 5 s.
	PollInterval time.Duration

	// PollJitter is the share of PollInterval, or of the intervals below, by which each pause is
	// longer or shorter at random, so that workers do not look in step. Up to 0.9; NoJitter: none.
	// Default 0.2.
	PollJitter float64

	// MaterializeInterval, ClaimInterval and ReclaimInterval take the place of PollInterval for one
	// loop: for ticks that are due, for runs that are due, for leases that have expired. 1 ms to
	// 24 h. Default PollInterval.
	MaterializeInterval time.Duration
	ClaimInterval       time.Duration
	ReclaimInterval     time.Duration

	// SweepInterval is how often a worker deletes what is older than Retention, on average. 1 ms to
	// 24 h. Default 1 min.
	SweepInterval time.Duration

	// Retention is how long what has ended is kept.
	Retention Retention

	// CallTimeout bounds every call to the database. 1 ms to a third of TTL. Default 5 s, or a
	// third of TTL if that is shorter.
	CallTimeout time.Duration

	// PreStopDelay is how long Run goes on after its context has ended, while Ready already fails,
	// so that load balancers stop sending requests. At most 24 h. Default 0.
	PreStopDelay time.Duration

	// DrainTimeout is how long Run then waits for handlers to finish before it ends their contexts
	// (ErrDraining). Their runs are given back, which costs them no attempt. After that it waits
	// for another CancelGrace (5 s). 1 ms to 365 days. Default 30 s.
	DrainTimeout time.Duration

	// MaxCrashes is after how many attempts whose leases were lost a run becomes a dead letter, so
	// that one which kills its worker each time harms no others for long. An attempt counts even if
	// the worker lost the answer to its claim, before it called the handler; a Requeue begins anew.
	// 1 to 1,000. NoLimit: any number. Default 5.
	MaxCrashes int

	// MaxDueAge is how long a run or a tick may be due before the check "runs" fails: see
	// Worker.Checks. 1 ms to 365 days. NoLimit: the check never fails. Default 5 min.
	MaxDueAge time.Duration

	// MaxDead is how many dead letters there may be before the check "dead" fails. Default 0: any
	// number.
	MaxDead int

	// Logger gets the changes of the database's state, lost leases, reclaimed runs and dead
	// letters; at Debug also each run and each cycle. If it panics, the line is lost. Default
	// slog.Default().
	Logger *slog.Logger

	// Hooks report what happens on this worker, on a goroutine of their own. Default none.
	Hooks Hooks

	// Middleware wraps every handler; the first is the outermost. Default none.
	Middleware []Middleware

	// Registerer is where NewWorker registers the worker's metrics, whose names begin with
	// tickslot_durable_. They are unregistered when Run returns. Default nil: no metrics.
	Registerer prometheus.Registerer
}

// Retention is how long rows are kept: a minute or more. NoLimit keeps them forever.
type Retention struct {
	Succeeded time.Duration // since the end. Default 7 days.
	Dead      time.Duration // since the end, of dead letters. Default 90 days.
	Canceled  time.Duration // since the end. Default 7 days.
	// Unseen is how long schedules and handlers are kept that no worker has any more. One that is
	// paused, or a handler whose limit was set, stays until that is changed. At least 10 min.
	// Default 30 days.
	Unseen time.Duration
}

// A Handler does the work of a run. The run has succeeded if it returns nil, even if its context
// has ended because the worker shuts down or the lease was lost, so return an error if work is
// left. After an error it is tried again, as HandlerOptions.Retry says, unless the error is marked
// by Permanent.
type Handler func(ctx context.Context, run *Run) error

// A Middleware wraps every handler, to do something before, after or around each attempt. It is
// called once for each handler, by Handle.
type Middleware func(next Handler) Handler

// HandlerOptions are the options of a handler. The zero value is fine.
type HandlerOptions struct {
	// MaxConcurrency is how many runs of the handler may be in progress at once in the fleet.
	// Workers with different values, as in a rolling deploy, together never exceed the largest.
	// Control can override it. Claims of a handler with a limit are made one after the other, by
	// all workers; those of handlers without a limit wait for nobody.
	//
	// A worker takes more than its share, which is this divided by the workers, only of what others
	// leave: a worker counts while it has room and looks for runs, for two of its poll intervals
	// after its last look, and, for runs that have been due for less than a poll interval, also if
	// it is only registered. At most 10,000. Default 0: any number.
	MaxConcurrency int

	// MaxPerPartition is how many runs of the handler with the same TriggerOptions.Partition, such
	// as those of a tenant, may be in progress at once in the fleet. A partition that is full holds
	// up no other, however many runs it has queued. Runs without a Partition are not counted.
	// Workers with different values together never exceed the largest. A claim looks at up to 500
	// partitions, and the next claim at those behind them: with thousands of full partitions, some
	// polls may pass before a run of another partition starts. At most 10,000. Default 0: any
	// number.
	MaxPerPartition int

	// Rate and Per bound how many attempts start: at most Rate in any Per in the fleet, wherever
	// that begins, by the database's clock. An attempt counts when it is claimed, once, whatever
	// becomes of it: also one that is a retry, is given back, or whose worker dies before it has
	// called the handler. It begins when the answer to the claim arrives, up to CallTimeout later.
	// What is due sooner stays queued, and workers look again when the database says that the next
	// start is allowed. Neither a pause nor deleting runs gives a start back; an older copy of the
	// database has not counted what came after it. Workers with different rates count the same
	// starts, each against its own, so together they never exceed the larger one. Of a Rate over
	// 60, starts may count for up to a sixtieth of Per longer. Rate is 1 to 1e9, and Per 100 ms to
	// 30 days. Default 0: any number.
	Rate int
	Per  time.Duration

	// MaxRunTime ends the context of an attempt (ErrMaxRunTime), which has then failed, whatever
	// the handler returns. It has nothing to do with the lease, unless the handler ignores the end
	// of its context for CancelGrace: then the lease is no longer renewed, and another worker has
	// the run when it has expired. 1 ms or more. NoLimit: never. Default 1 h.
	MaxRunTime time.Duration

	// Retry says how an attempt that failed is followed by another.
	Retry Retry
}

// A Retry says how often and when a run that failed is tried again. While it waits it is queued and
// holds nothing: any worker may run the next attempt.
type Retry struct {
	// MaxElapsedTime is for how long a run is tried before it becomes a dead letter, from when its
	// first attempt that failed began. The last attempt begins when this time is over. A Requeue
	// begins anew. 1 ms or more. NoLimit: for ever, or until its attempts are used up. Default 21
	// days.
	MaxElapsedTime time.Duration

	// MaxAttempts is how many attempts a run has at most before it becomes a dead letter. Attempts
	// whose lease was lost count; those that a worker gave back when it shut down do not. 1 to
	// 1,000; 1: no retry. Default 0: any number.
	MaxAttempts int

	// FirstWait is how long to wait before the second attempt; each further wait is twice as long
	// as the one before. Attempts that do not count (those given back, and those before a Requeue)
	// make no wait longer. Each wait is shortened at random by up to half. Default 1 s, or MaxWait
	// if that is shorter.
	FirstWait time.Duration

	// MaxWait is the longest wait. At most 24 h. Default 1 h, or FirstWait if that is longer.
	MaxWait time.Duration
}

// ScheduleOptions are the options of a schedule. The zero value is fine.
type ScheduleOptions struct {
	// CatchUp decides about ticks that came due while no worker was running, or a pause went on.
	CatchUp CatchUp

	// Payload is what the handler gets with each run. At most MaxPayloadLen. Default nil.
	Payload []byte

	// Priority of its runs. Default PriorityNormal.
	Priority Priority
}

// A CatchUp decides about ticks of a schedule that were not materialized when they came due,
// because no worker that has the schedule was running. A tick counts as missed if a later one is
// due as well, or if it is more than LateAfter late. Ticks that come due during a pause count as
// paused, and are not caught up.
type CatchUp struct {
	// Policy says which of them run. Default CatchUpOnce.
	Policy CatchUpPolicy

	// Max is how many missed ticks CatchUpBackfill queues at most, the latest. The others are
	// skipped. 1 to 10,000. Default 100.
	Max int

	// Window is how old a missed tick may be that still runs. Older ones are skipped. 0 and
	// NoLimit: any age. Default 0.
	Window time.Duration
}

// LateAfter is how late a tick is materialized before it counts as missed.
const LateAfter = time.Minute

// A CatchUpPolicy decides about missed ticks.
type CatchUpPolicy uint8

const (
	// CatchUpOnce queues one run for all of them, of the latest tick. A tick that comes due
	// while a run of the schedule still waits for its first attempt is coalesced with that one,
	// too.
	CatchUpOnce CatchUpPolicy = iota
	// CatchUpBackfill queues a run for each, up to CatchUp.Max, and for each tick that comes due,
	// whether others wait or not.
	CatchUpBackfill
	// CatchUpSkip queues none, and goes on with the next tick. A tick that comes due while a run of
	// the schedule still waits for its first attempt is coalesced with that one.
	CatchUpSkip
)

// Priority orders the runs that are due: all of a higher one are claimed before those of a lower.
// The smaller number is the higher priority, in JSON and in the database, too.
type Priority int8

// The priorities.
const (
	PriorityHigh   Priority = -1 // before all others
	PriorityNormal Priority = 0
	PriorityLow    Priority = 1 // after all others
)
