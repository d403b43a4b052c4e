// Package timer runs recurring timers on many hosts and keeps a limit that holds in the whole
// fleet.
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
//   - MaxConcurrency limits overlap: runs in progress at the same time in the fleet. Default 1.
//   - MaxPerTick limits the rate: runs that one tick starts in the fleet, each on another host.
//     With 3, three hosts run a short job three times per interval; with 1 it runs once. Both are
//     common, so with a MaxConcurrency above 1 you have to set it. Otherwise the default is 1.
//   - MaxPerHost limits runs at the same time on one host. Default MaxConcurrency, so one host may
//     take all slots.
//
// Several timers may share a [Limit], which also holds in the fleet: a run takes a slot of the
// limit together with its own slot, or does not start. Config.MaxRuns bounds all runs of a host.
//
// A tick is a scheduled instant, the same on every host. Each host tries each tick once (unless
// OnFull is FullWait), in these steps: it is due; blackout, MaxPerHost and MaxRuns are checked; one
// call to the store claims tick, slot and limits together; run; release. A tick that does not start
// a run is counted once, with the [Reason], which Scheduler.Explain reports. The store enforces a
// pause. If a timer has no limits, it does not call the store, so each host enforces its pause,
// after the blackout.
//
// # A run
//
// A run holds a slot: a lease in the store that is renewed until the handler returns. If the lease
// is lost, the run is no longer Valid and the handler's context ends (context.Cause matches
// dlock.ErrLost) before the slot can go to another host. There are two exceptions. After a pause of
// the whole process, Valid is false immediately and the context ends within one second. And if the
// store does not answer, the run of a timer with StoreDownRunLocal, the default, continues: it is
// not Valid, but its context does not end. [RunFromContext] tells the handler its tick, slot and
// fence, whether it is still valid, and what ran before; [ContextWithRun] does so in the handler's
// unit test.
//
// # Schedules
//
// Package schedule has the schedules: Every is a grid of elapsed time; Cron and Daily follow the
// clocks of a zone, daylight saving time included; After is a fixed delay from the end of a run to
// the next in the fleet; At is a list of instants; Except removes ticks; and any type with a Next
// method is a schedule. CatchUp decides about ticks that came due while no host was running,
// RunOnStart about a run when a host starts, and Retry about runs that fail. Delay moves the start
// of a tick, not the tick.
//
// # A fixed delay
//
// With schedule.After(d) a timer is due d after its last run ended anywhere in the fleet, whatever
// the outcome; triggered runs count. The store keeps when that was and measures d by its own clock,
// so the clocks of hosts need not agree. It has to be redislock, sqllock (but not on SQL Server) or
// memlock. One run is in progress at a time, so MaxConcurrency and MaxPerTick are 1; CatchUp, Delay
// and RunOnStart are refused.
//
//   - A run ends when its slot is released. If its host crashed or was cut off, it ends when its
//     lease expires, up to a TTL later.
//   - The very first run starts immediately. A host that starts later learns from the store when
//     the last run ended. Without a store, each start of the program begins with a run.
//   - A run starts when d is over, or up to a second late if d is shorter than that and the host
//     of the last run has stopped.
//   - If a try starts nothing (the timer is paused, a limit is full, the store does not answer),
//     the host tries again after d, but after at least a second and at most a minute, or when the
//     store says; in a blackout, when the blackout ends. These tries are ticks in Status and
//     metrics. AlarmAfter counts at most one of them in each d, and one of those that come due
//     while a run ignores its context past MaxRunTime.
//   - While a host waits for d, it does not call the store. When d is over, each host calls once.
//   - TimerStatus.Next is when this host next asks; it is zero while a run is in progress here.
//   - After Update, the new d counts from the last run. The same holds for a timer that was removed
//     and registered again; without a store its d begins anew, unless a run is still in progress.
//   - If a timer has only ever been triggered, Redis forgets it after an hour. Its first scheduled
//     tick then starts immediately.
//
// A run starts too early only if hosts run without the store (StoreDownRunLocal: each counts from
// its own runs, and the store does not know when those ended), if the store's clock jumps ahead, or
// if the store loses its data. If the store's clock was ahead and is set right, d lasts at most
// five seconds longer. sqllock refuses a d that is not shorter than its Options.Retention.
//
// # Timers that come, change and go
//
// Register, Update and Remove add, change and remove timers one by one while the scheduler runs. A
// manager.Manager does so for a set that is read repeatedly, such as a table with a row for each
// tenant.
//
// # Control and overrides
//
// A control.Control pauses a timer in the whole fleet, changes its MaxConcurrency, triggers it, and
// cancels runs, at run time and through the store. The store enforces pauses and limits, so they
// also bind a host that was stopped in the meantime. A trigger waits in the store until a host has
// room for its run. Scheduler.Trigger instead starts a run on its own host, and returns a Handle
// that waits for its result.
//
// # Middleware and hooks
//
// Config.Middleware wraps the Run of every timer, to do something before, after or around each
// attempt. Config.Hooks report what has happened: runs that started and ended, ticks that were
// skipped and why, leases that were lost, a store that went down. They cannot harm a timer.
//
// # Lines in the log
//
// These lines keep their text and keys; at a …, the line continues with an explanation. At Debug
// each run and each skipped tick has its lines; a change of the level is seen within ten seconds.
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
// A line about a run also has these keys; one that does not apply is left out:
//
//   - timer: its name.
//   - tick: the scheduled instant, in UTC. A triggered run has none.
//   - by, note, payload_bytes: who triggered the run, why, and how long its payload is.
//   - slot, fence: Run.Slot and Run.Fence.
//   - holder: who holds the slot. In "tick skipped": who holds it, or has claimed the tick, if the
//     store reported it.
//   - attempt: how often the handler was called. More than 1 is a retry; of is the most attempts.
//   - outcome: an [Outcome]. took: how long the run took, waits between attempts included.
//   - reason: a [Reason]. ticks: how many were missed, if more than one; tick is the first of them.
//   - on_start: true if RunOnStart started the run.
//   - goes_on: whether the run continues without its lease (StoreDownRunLocal).
//   - err, stack: the error, and where the handler panicked.
//   - drain: how long the drain took. still_running: timers whose runs did not return, or nothing.
//
// # When the store fails
//
// Timer.OnStoreDown decides. With StoreDownRunLocal, the default, the timer continues without the
// store: up to hosts × MaxPerHost runs may then be in progress, none of them Valid. With
// StoreDownSkip, nothing starts, and a run ends when its lease can no longer be trusted: the limit
// holds through any outage. A refusal by the store is never taken for a failure.
//
// If the store answers that it is not set up correctly (dlock.ErrSetup), or that a key of a timer
// has a fault (dlock.ErrFault), ticks are skipped, whatever OnStoreDown says. If the store's first
// answer is ErrSetup, Run returns it.
//
// After three failures in a row, ticks no longer call the store. Only one probe per host does,
// after pauses that grow, with jitter. After three answers in a row, ticks call the store again.
// Runs that continued without the store then get slots before this host starts a new run of their
// timer. If no slot is free, they continue without one, and no new run of that timer starts on this
// host until they have one or have ended. So the number of runs above the limit can only fall.
//
// # Fixed times
//
// These cannot be set:
//
//   - A tick counts as missed (CatchUp) when a host is more than 11 s late for it.
//   - Run waits for the store's first answer for 5 s, or for the TTL if that is shorter.
//   - A host asks the store for at most 64 ticks and triggers at the same time; further ones wait.
//   - A host on which nothing is due takes and releases one lock about once per TTL, to see whether
//     the store answers, and counts the hosts (once a minute if there are more than 100). With each
//     heartbeat it renews its own slot of tickslot:hosts.
//   - While the store is down, the pause before a probe grows from StoreTimeout/4 to TTL/3; each is
//     made up to half longer or shorter at random.
//   - An outage that begins within a minute of one that was logged has no lines of its own. For
//     leases that are lost in an outage, and for panics in hooks, ten lines a minute are logged.
//   - A warning about how the store is set up is logged at most once an hour.
//
// # What is not promised
//
// A tick runs at most MaxPerTick times, not exactly: if a host crashes after it claimed a tick, the
// tick does not run again; and a tick that comes due while all slots are held is skipped, not
// queued, unless OnFull is FullWait. A handler that ignores its context keeps running after its
// lease is lost; only the resource it writes to can stop it, by checking its fence. Hosts do not
// get slots in a fair order.
package timer
