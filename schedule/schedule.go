package schedule

import "time"

// A Schedule says when something is due. robfig/cron and River use the same interface, so their
// calendars can be used as they are. Their intervals (@every, PeriodicInterval) count from the
// instant they are asked, so they differ between hosts; see CheckShared.
//
// Next returns the first instant after t at which the schedule is due, or the zero time if there is
// none. Every host must get the same answer, because the instant identifies the tick in the fleet.
// Therefore t is always in UTC, even for schedules that use the zone of t as their own (robfig/cron
// does, if no zone is given). Next must not block, because one goroutine may ask for all timers,
// and it must be safe for concurrent use. Instants are rounded up to the microsecond.
//
// A Schedule may also implement Checker, and fmt.Stringer. The string is shown to people and is the
// schedule's Identity: it must contain everything that determines the ticks, and nothing that
// differs between hosts.
type Schedule interface {
	Next(t time.Time) time.Time
}

// A Checker is a Schedule or a Blackout that can validate itself. Check and CheckBlackout call its
// Check method and report what it returns together with all other faults. A schedule that is
// composed of others returns their faults, too. User-defined types may implement it, but need not.
type Checker interface {
	Check() error
}
