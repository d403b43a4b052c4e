// Package timer runs recurring timers on many hosts and keeps a limit that holds in the whole
// fleet.
//
//	lock := redislock.New(rdb, redislock.Options{Prefix: "shop:"})
//	defer lock.Close()
//	timers, err := timer.New(timer.Config{Lock: lock},
//		timer.Timer{
//			Name:           "process-orders",
//			Schedule:       schedule.Every(time.Minute),
//			MaxConcurrency: 3,
//			MaxRunTime:     30 * time.Second,
//			Run:            processOrders,
//		},
//	)
//	if err != nil {
//		return err // every fault of every timer, and how to mend it
//	}
//	return timers.Run(ctx) // blocks; drains and releases when ctx ends
//
// # Three limits
//
// Each timer has three, and they are different things:
//
//   - MaxConcurrency, overlap: runs at once in the fleet. Default 1.
//   - MaxPerTick, rate: starts of one tick in the fleet. Default MaxConcurrency. Without it three
//     hosts with a short job would run it three times per interval, one after the other, and never
//     overlap.
//   - MaxPerHost: runs at once on one host. Default MaxConcurrency. Without it one host may take
//     all slots.
//
// A tick is a scheduled instant, the same on every host. Each host tries each tick once, in these
// steps: due, blackout, MaxPerHost, one call to the store that claims tick and slot together, run,
// release. A tick that does not start a run is counted once, with the [Reason], and
// Scheduler.Explain tells it. The store enforces a pause; for a timer without limits, which does
// not call the store, each host does, after the blackout.
//
// # A run
//
// A run holds a slot, a lease in the store that is renewed until the handler returns. If the lease
// is lost, the run is no longer Valid and the handler's context ends (context.Cause matches
// dlock.ErrLost) before the slot can go to another host. There are two exceptions. After a pause of
// the whole process, Valid is false at once and the context ends within one second. And if the
// store does not answer, a timer with StoreDownRunLocal, the default, goes on: its run is not
// Valid, but its context does not end. [RunFromContext] tells the handler its tick, slot and fence,
// and whether it is still valid.
//
// # Schedules
//
// Package schedule makes them: Every is a grid of real time; Cron and Daily follow the clocks of a
// zone, also through the nights in which these are changed; At is a list; Except takes ticks out;
// and anything with a Next method will do. CatchUp decides about ticks that came due while nobody
// was there, Retry about runs that fail. Delay moves the start of a tick, not the tick.
//
// # Control and overrides
//
// A Control pauses a timer in the whole fleet, changes its MaxConcurrency, triggers it, and ends
// runs, at run time and through the store. The store itself enforces it, so a host that was stopped
// meanwhile is bound, too.
//
// # When the store fails
//
// Timer.OnStoreDown decides. StoreDownRunLocal, the default, goes on without the store: then up to
// hosts × MaxPerHost runs may go on at once, none of them Valid. StoreDownSkip starts nothing and
// ends what runs when its lease can no longer be trusted: then the limit holds through any outage.
// A "no" from the store is never taken for a failure.
//
// A store that says that it is not set up right (dlock.ErrSetup), or that finds fault with what is
// stored for a timer (dlock.ErrFault), does answer: ticks are skipped then, whatever OnStoreDown
// says, and Run fails at once if the former is its first answer.
//
// After three failures in a row ticks ask the store no more. One probe per host does, after pauses
// that grow, with jitter; three answers in a row end it. Then runs that went on without the store
// take a slot before this host starts anything new of their timer. Those that find none go on, and
// until they end nothing new of that timer starts here: what is beyond the limit only gets less.
//
// # What is not promised
//
// A tick runs at most MaxPerTick times, not exactly: a host that crashes after it claimed a tick
// takes the tick with it, and a tick that comes due while every slot is held is skipped, not
// queued. A handler that ignores its context goes on after its lease is lost; only a fence checked
// by the resource it writes to stops it there. The order in which hosts get slots is not fair.
package timer
