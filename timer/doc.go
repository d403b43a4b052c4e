// Package timer runs recurring timers on many hosts and enforces limits that hold across the fleet.
//
//	store := redislock.New(rdb, redislock.Options{Prefix: "shop:"})
//	defer store.Close()
//	timers, err := timer.New(timer.Config{Store: store},
//		timer.Timer{
//			Name:           "process-orders",
//			Schedule:       schedule.Every(time.Minute),
//			MaxConcurrency: 3, // runs at once in the fleet
//			MaxPerTick:     1, // each tick runs once in the fleet
//			MaxRunTime:     30 * time.Second,
//			Run:            processOrders,
//		},
//	)
//	if err != nil {
//		return err // every fault of every timer, and how to fix it
//	}
//	return timers.Run(ctx) // blocks; drains and releases when ctx ends
//
// # Three limits
//
// Each timer has three limits:
//
//   - MaxConcurrency limits overlap: how many runs may be in progress at the same time in the
//     fleet. Default 1.
//   - MaxPerTick limits the rate: how many runs one tick starts in the fleet, each on a different
//     host. With 3, three hosts run a short job three times per interval; with 1 it runs once. Both
//     are common, so if MaxConcurrency is above 1 you must set MaxPerTick. Otherwise the default is
//     1.
//   - MaxPerHost limits how many runs may be in progress at the same time on one host. Default
//     MaxConcurrency, so one host may take all slots.
//
// Several timers may share a [Limit], which is also enforced across the fleet. A run takes a slot
// of the limit together with its own slot, or does not start. Config.MaxRuns bounds all runs of a
// host.
//
// A tick is a scheduled instant and is the same on every host. Each host tries each tick once,
// unless OnFull is FullWait. When the tick is due, the host checks the blackouts, MaxPerHost and
// MaxRuns. Then it claims the tick, the slot and the limits with one call to the store, runs the
// handler, and releases the slot. A tick that does not start a run is counted once, with its
// [Reason]. Scheduler.Explain reports the reason. The store enforces a pause. A timer without
// limits does not call the store, so each host enforces its pause, after the blackouts.
//
// # A run
//
// A run holds a slot: a lease in the store that is renewed until the handler returns. If the lease
// is lost, the run is no longer Valid, and the handler's context ends before the slot can go to
// another host. context.Cause then matches dlock.ErrLost. There are two exceptions. After a pause
// of the whole process, Valid is false immediately, but the context ends only within one second. If
// the store does not answer, a run of a timer with StoreDownRunLocal, the default, continues: the
// run is not Valid, but its context does not end. [RunFromContext] gives the handler its tick, slot
// and fence, and reports whether the run is still valid and what ran before. [ContextWithRun]
// provides a run in the handler's unit tests.
//
// # Schedules
//
// Package schedule defines the schedules. Every is a grid of elapsed time. Cron and Daily follow
// the clocks of a zone, including daylight saving time. After is a fixed delay from the end of a
// run to the next run in the fleet. At is a list of instants. Except removes ticks. Any type with a
// Next method is a schedule. CatchUp decides what happens to ticks that were due while no host was
// running. RunOnStart decides whether a timer runs when a host starts. Retry decides whether a
// failed run is retried. Delay postpones the start of a tick, but does not change the tick.
//
// # A fixed delay
//
// With schedule.After(d) a timer is due d after its last run ended anywhere in the fleet, whatever
// the outcome. Triggered runs count. The store keeps the time of that end and measures d by its own
// clock, so the clocks of hosts need not agree. The store must be redislock, sqllock (but not on
// SQL Server) or memlock. Only one run is in progress at a time, so MaxConcurrency and MaxPerTick
// are 1. CatchUp, Delay and RunOnStart are refused.
//
//   - A run ends when its slot is released. If its host crashed or was cut off, the run ends when
//     its lease expires, up to a TTL later.
//   - The very first run starts immediately. A host that starts later learns from the store when
//     the last run ended. Without a store, each start of the program begins with a run.
//   - A run starts when d is over. It starts up to a second late if d is shorter than a second and
//     the host of the last run has stopped.
//   - If an attempt starts no run (the timer is paused, a limit is full, the store does not
//     answer), the host tries again after d (at least a second, at most a minute), or when the
//     store says. In a blackout, it tries again when the blackout ends. These attempts are ticks in
//     Status and metrics. AlarmAfter counts at most one of them in each period of d, and one of
//     those that are due while a run ignores its context past MaxRunTime.
//   - While a host waits for d, it does not call the store. When d is over, each host calls the
//     store once.
//   - TimerStatus.Next is the time of this host's next attempt. It is zero while a run is in
//     progress on this host.
//   - After Update, the new d counts from the last run. The same holds for a timer that was removed
//     and registered again. Without a store, d of such a timer starts over, unless a run is still
//     in progress.
//   - If a timer has only ever been triggered, Redis forgets it after an hour. Its first scheduled
//     tick then starts immediately.
//
// A run starts too early only in three cases: the store's clock jumps ahead, the store loses its
// data, or hosts run without the store (StoreDownRunLocal). In the last case each host counts from
// its own runs, and the store does not know when those ended. If the store's clock was ahead and is
// corrected, d lasts at most five seconds longer. sqllock refuses a d that is not shorter than its
// Options.Retention.
//
// # Adding, updating and removing timers
//
// Register, Update and Remove change single timers while the scheduler runs. A manager.Manager does
// so for a set of timers that it reads repeatedly, such as a table with a row per tenant.
//
// # Control and overrides
//
// A control.Control pauses a timer in the whole fleet, changes its MaxConcurrency, triggers it, and
// cancels runs, at run time and through the store. The store enforces pauses and limits, so they
// also bind a host that was suspended in the meantime. A trigger waits in the store until a host
// has room for its run. Scheduler.Trigger instead starts a run on its own host, and returns a
// Handle that waits for the result.
//
// # Middleware and hooks
//
// Config.Middleware wraps the Run of every timer, to run code before, after or around each attempt.
// Config.Hooks report events: runs that started and ended, ticks that were skipped and why, leases
// that were lost, a store that went down. Hooks cannot affect a timer.
//
// # Lines in the log
//
// The text and keys of these lines are stable. At a …, the line continues with an explanation. At
// level Debug each run and each skipped tick is logged. A change of the level takes effect within
// ten seconds.
//
//	"timer: run started"           Debug
//	"timer: an attempt failed: …"  Info: of, retry_in, err, stack
//	"timer: run ended"             Debug: outcome, took, err
//	                               Info if it is timeout, lease_lost, canceled, draining
//	"timer: run failed"            Error: outcome, took, err
//	"timer: run panicked"          Error: outcome, took, err, stack
//	"timer: lease lost"            Warn: goes_on, err
//	"timer: tick skipped"          Debug: timer, tick, reason, ticks, holder, err
//	"timer: draining"              Info: cause
//	"timer: stopped"               Info: drain, still_running
//
// A line about a run also has these keys. A key that does not apply is omitted:
//
//   - timer: the name of the timer.
//   - tick: the scheduled instant, in UTC. A triggered run has none.
//   - by, note, payload_bytes: who triggered the run, why, and the length of its payload.
//   - slot, fence: Run.Slot and Run.Fence.
//   - holder: who holds the slot. In "tick skipped", it is who holds the slot or has claimed the
//     tick, if the store reported it.
//   - attempt: how many times the handler was called. More than 1 is a retry. The key of is the
//     maximum number of attempts.
//   - outcome: an [Outcome]. took: the duration of the run, including waits between attempts.
//   - reason: a [Reason]. ticks: the number of missed ticks if more than one; tick is then the
//     first of them.
//   - on_start: true if RunOnStart started the run.
//   - goes_on: whether the run continues without its lease (StoreDownRunLocal).
//   - err, stack: the error, and where the handler panicked.
//   - drain: how long the drain took. still_running: the timers whose runs did not return, or
//     nothing.
//
// # When the store fails
//
// Timer.OnStoreDown decides what happens. With StoreDownRunLocal, the default, the timer continues
// without the store. Up to hosts × MaxPerHost runs may then be in progress, and none of them is
// Valid. With StoreDownSkip, no run starts, and a run ends when its lease can no longer be trusted,
// so the limit holds through any outage. A refusal by the store never counts as a failure.
//
// If the store answers that it is not set up correctly (dlock.ErrSetup), or that a key of a timer
// is invalid (dlock.ErrFault), ticks are skipped, whatever OnStoreDown says. If the store's first
// answer is ErrSetup, Run returns that error.
//
// After three consecutive failures, ticks no longer call the store. Instead, each host probes the
// store, after pauses that grow, with jitter. After three consecutive answers, ticks call the store
// again. Runs that continued without the store then get slots before this host starts a new run of
// their timer. If no slot is free, they continue without one. No new run of that timer starts on
// this host until they have a slot or have ended. Therefore the number of runs above the limit
// never grows.
//
// # Fixed times
//
// These values cannot be configured:
//
//   - A tick counts as missed (CatchUp) if a host is more than 11 s late for it.
//   - Run waits for the store's first answer for 5 s, or for the TTL if that is shorter.
//   - A host calls the store for at most 64 ticks and triggers at the same time. Further ones wait.
//   - A host on which nothing is due takes and releases one lock about once per TTL, to find out
//     whether the store answers. It also counts the hosts (once a minute if there are more than
//     100). With each heartbeat it renews its own slot of tickslot:hosts.
//   - While the store is down, the pause before a probe grows from StoreTimeout/4 to TTL/3. Each
//     pause is randomly lengthened or shortened by up to half.
//   - An outage that begins within a minute of a logged outage is not logged. For leases that are
//     lost in an outage, and for panics in hooks, at most ten lines per minute are logged.
//   - A warning about how the store is set up is logged at most once an hour.
//
// # What is not promised
//
// A tick runs at most MaxPerTick times, not exactly that often. If a host crashes after it claimed
// a tick, the tick does not run again. A tick that comes due while all slots are held is skipped,
// not queued, unless OnFull is FullWait. A handler that ignores its context keeps running after its
// lease is lost. Only the resource that it writes to can stop it, by checking its fence. Hosts do
// not get slots in a fair order.
package timer
