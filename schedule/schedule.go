package schedule

import "time"

// A Schedule determines when something is due. robfig/cron and River use the same interface, so
// their calendars can be used unchanged. Their intervals (@every, PeriodicInterval) count from the
// time of the call, so hosts would disagree; see CheckShared.
//
// Next returns the first instant after t at which the schedule is due, or the zero time if there is
// none. Every host must get the same result, because the instant identifies the tick in the fleet.
// Therefore t is always in UTC, even for schedules that use the zone of t (robfig/cron does, if no
// zone is given). Next must not block, because one goroutine may call it for all timers. It must be
// safe for concurrent use. Results are rounded up to the microsecond.
//
// A Schedule may also implement Checker and fmt.Stringer. The string is shown to people and is the
// schedule's Identity. It must contain everything that determines the ticks, and nothing that
// differs between hosts.
type Schedule interface {
	Next(t time.Time) time.Time
}

// A Checker is a Schedule or a Blackout that can validate itself. The functions Check and
// CheckBlackout call its Check method and return its errors together with all other faults. A
// schedule that is composed of other schedules also returns their faults. User-defined types may
// implement Checker, but need not.
type Checker interface {
	Check() error
}
