// Package schedule computes when something is due, identically on every host, and when it must not
// start.
//
//	schedule.Every(30 * time.Second)
//	schedule.Daily("02:30", "Europe/Berlin")
//	schedule.Cron("0 8 * * MON-FRI", "America/New_York")
//	schedule.At(launch, launch.AddDate(0, 0, 7))
//	schedule.Times(3, launch, schedule.Daily("08:00", zone))
//	schedule.Except(schedule.Daily("08:00", zone), schedule.Weekdays(zone, time.Sunday))
//
// A [Schedule] has one method, Next; the schedules of robfig/cron and River satisfy it unchanged. A
// [Blackout] has one method, Until. The constructors return no error. A malformed schedule, zone or
// window keeps its faults, which [Check] returns, each with its place in the text and how to fix
// it; for a cron expression, Check returns the first fault. For an expression that a user has
// typed, [ParseCron] returns the schedule or its faults.
//
// # What is promised
//
// Hosts with the same zone data agree on every tick without communicating, because a tick depends
// only on the schedule, not on when or where it is computed. Each schedule defines what happens in
// the hour that clocks skip or show twice; see [Cron]. Ticks are instants of whole microseconds up
// to the year 9999. The values are immutable and safe for concurrent use.
//
// # What is not promised
//
// Nothing here runs anything or waits. Only Check, CheckShared and CheckBlackout read the clock, to
// ask what comes next. User-defined Schedules and Blackouts are trusted: [CheckShared] finds most
// schedules whose ticks differ between hosts, but not all. If the rules of a zone have changed,
// hosts with different zone data disagree about it.
//
// # Running schedules
//
// A scheduler calls [Check] once, and then [Next], [Advance], [Latest] and [BlackedOut] instead of
// the methods. These ask in UTC, bound the work they do, and turn a panic or an impossible answer
// into an error. [Identity] tells whether two hosts, or two versions of a program, have the same
// schedule.
package schedule
