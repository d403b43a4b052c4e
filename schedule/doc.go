// Package schedule says when something is due, the same on every host, and when it must not start.
//
//	schedule.Every(30 * time.Second)
//	schedule.Daily("02:30", "Europe/Berlin")
//	schedule.Cron("0 8 * * MON-FRI", "America/New_York")
//	schedule.At(launch, launch.AddDate(0, 0, 7))
//	schedule.Except(schedule.Daily("08:00", zone), schedule.Weekdays(zone, time.Sunday))
//
// A [Schedule] has one method, Next; those of robfig/cron and River fit as they are. A [Blackout]
// has one method, Until. The constructors return no error: what is wrong with a schedule, a zone or
// a window is kept in it, and [Check] returns every fault at once, with the place in the text and
// how to mend it.
//
// # What is promised
//
// Hosts that have the same zone data agree on every tick without a word, because a tick follows
// from the schedule alone and not from when or where it is asked. Each schedule defines what
// becomes of the hour that clocks skip or show twice; see [Cron]. Ticks are instants of whole
// microseconds up to the year 9999. The values are immutable and may be used by several goroutines
// at once.
//
// # What is not promised
//
// Nothing here runs anything, waits, or reads a clock, except that Check asks for the tick that
// comes next. A Schedule or Blackout of your own is believed: [CheckShared] finds most of those
// whose ticks differ from host to host, not all. Hosts with different zone data disagree about a
// zone whose rules have changed.
//
// # For who runs schedules
//
// A scheduler calls [Check] once, and then [Next], [Advance], [Latest] and [BlackedOut] in place of
// the methods: they ask in UTC, bound what they do, and turn a panic or an answer that makes no
// sense into an error. [Identity] tells whether two hosts, or two versions of a program, have the
// same schedule.
package schedule
