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
// A [Schedule] has one method, Next; the schedules of robfig/cron and River satisfy the interface
// unchanged. A [Blackout] has one method, Until. The constructors do not return errors. They keep
// the faults of a malformed schedule, zone or window, and [Check] returns these faults, each with
// its place in the text and how to fix it. For a cron expression, Check returns only the first
// fault. To parse an expression that a user has typed, call [ParseCron], which returns the schedule
// or its faults.
//
// # What is promised
//
// Hosts with the same zone data agree on every tick without communicating, because a tick depends
// only on the schedule, not on when or where it is computed. Each schedule defines what happens in
// an hour that clocks skip or repeat; see [Cron]. Ticks are whole microseconds, up to the year
// 9999. The values are immutable and safe for concurrent use.
//
// # What is not promised
//
// This package does not run anything and does not wait. Only Check, CheckShared and CheckBlackout
// read the clock, to compute the next tick or end. User-defined Schedules and Blackouts are
// trusted: [CheckShared] finds most schedules whose ticks differ between hosts, but not all. If the
// rules of a zone change, hosts with different zone data disagree about ticks in that zone.
//
// # Running schedules
//
// A scheduler calls [Check] once. After that it calls [Next], [Advance], [Latest] and [BlackedOut]
// instead of the methods. These functions use UTC, bound their work, and return an error if a
// method panics or returns an impossible result. Use [Identity] to find out whether two hosts, or
// two versions of a program, have the same schedule.
package schedule
