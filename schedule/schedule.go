package schedule

import "time"

// A Schedule says when something is due. It is the shape that robfig/cron and River share, so their
// calendars fit as they are. Their intervals (@every, PeriodicInterval) begin when they are asked
// and so differ from host to host; see CheckShared.
//
// Next returns the first instant after t at which it is due, or the zero time if there is none.
// Every host must get the same answer, because the instant is the identity of a tick in the fleet.
// So t is always in UTC, also for schedules that take its zone for theirs, as those of robfig/cron
// do that name none. It must not block, because one goroutine may ask for all timers, and it must
// bear to be called by several goroutines at once. Instants are rounded up to the microsecond.
//
// A Schedule may also be a Checker, and a fmt.Stringer, which is how people get to see it, and how
// Identity tells it from another: let the text have all that decides about ticks, and nothing that
// differs from host to host.
type Schedule interface {
	Next(t time.Time) time.Time
}

// A Checker is a Schedule or a Blackout that knows whether it is well made. Check and CheckBlackout
// call its Check; what it returns comes back together with all other faults. What is made of parts
// returns the faults of its parts. A type of your own may have a Check, too; without one nothing is
// asked.
type Checker interface {
	Check() error
}
