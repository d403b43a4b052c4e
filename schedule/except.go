package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Except returns the schedule without the ticks that fall into one of the blackouts. Business days
// are Except(Daily("08:00", zone), Weekdays(zone, time.Saturday, time.Sunday), Dates(zone,
// "2026-12-25")). Removed ticks count neither as missed nor as skipped.
//
// The schedule never fires if it has no tick left within 100 years, or if its next 500,000 ticks
// (or minutes, for a BlackoutFunc) are all blacked out.
func Except(schedule Schedule, blackouts ...Blackout) Schedule {
	return except{schedule, slices.Clone(blackouts)}
}

type except struct {
	schedule  Schedule
	blackouts []Blackout
}

// Check implements Checker.
func (e except) Check() error {
	var faults []error
	if e.schedule == nil {
		faults = append(faults, errors.New("Except: its schedule is nil: give it one"))
	} else {
		faults = append(faults, checkParts(e.schedule)...)
	}
	if _, fixed := e.schedule.(FixedDelay); fixed {
		faults = append(faults, errors.New("Except: an After has no ticks to leave out: use Timer.Blackouts"))
	}
	if len(e.blackouts) == 0 {
		faults = append(faults, errors.New("Except: it has no blackout: give it one, or use the schedule as it is"))
	}
	for _, b := range e.blackouts {
		faults = append(faults, CheckBlackout(b)...)
	}
	return errors.Join(faults...)
}

const (
	exceptYears = 100
	exceptTries = 500_000
)

// Next implements Schedule. It goes from tick to tick and from the end of one blackout to the next.
func (e except) Next(t time.Time) time.Time {
	limit := t.AddDate(exceptYears, 0, 0)
	if t.IsZero() {
		limit = time.Date(lastYear, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for range exceptTries {
		next, err := Next(e.schedule, t)
		if err != nil {
			panic(brokenPart{fmt.Errorf("%s: %w", Describe(e.schedule), err)})
		}
		if next.IsZero() || next.After(limit) {
			break
		}
		until, _, err := BlackedOut(e.blackouts, next)
		if err != nil {
			panic(brokenPart{err})
		}
		if until.IsZero() {
			return next
		}
		t = until.Add(-1) // the end of a blackout is exclusive, so a tick at until counts
	}
	return time.Time{}
}

// A brokenPart is the value with which the method except.Next panics when a user-defined part
// fails, because the method cannot return an error. The function Next turns it back into an error.
type brokenPart struct{ error }

func (e except) String() string {
	var bs []string
	for _, b := range e.blackouts {
		bs = append(bs, Describe(b))
	}
	return fmt.Sprintf("%s, except %s", Describe(e.schedule), strings.Join(bs, ", "))
}

// Times returns a schedule that has only the first n ticks of another schedule at from or later.
// For example, Times(3, launch, Daily("08:00", zone)) is due on three mornings and never again. A
// tick counts whether or not it ran, because a schedule has no knowledge of runs.
//
// The ticks are counted from the instant from. It must be the same on all hosts and at every start
// of the program. With Times(3, time.Now(), s) each start counts from its own instant, so every
// host has its own ticks, and no check detects that. As with At, ticks in the past are valid. n
// must be 1 to MaxTimes.
func Times(n int, from time.Time, schedule Schedule) Schedule {
	return counted{schedule, n, from.Round(0), new(atomic.Pointer[time.Time])}
}

// MaxTimes is the largest n for Times. Each host counts that far the first time it calls Next.
const MaxTimes = 1000

type counted struct {
	schedule Schedule
	n        int
	from     time.Time
	last     *atomic.Pointer[time.Time] // the last tick, once computed
}

// of applies the same limit to another schedule.
func (c counted) of(s Schedule) counted { return Times(c.n, c.from, s).(counted) }

// Check implements Checker.
func (c counted) Check() error {
	var faults []error
	if c.n < 1 || c.n > MaxTimes {
		faults = append(faults, fmt.Errorf("Times(%d): use 1 to %d", c.n, MaxTimes))
	}
	if c.from.IsZero() {
		faults = append(faults, errors.New("Times: its from is the zero time: set the instant from which ticks are "+
			"counted, the same on all hosts"))
	}
	switch c.schedule.(type) {
	case nil:
		faults = append(faults, errors.New("Times: its schedule is nil: give it one"))
	case FixedDelay:
		faults = append(faults, errors.New("Times: an After has no ticks to count: use another schedule"))
	default:
		faults = append(faults, checkParts(c.schedule)...)
	}
	return errors.Join(faults...)
}

// Next implements Schedule.
func (c counted) Next(t time.Time) time.Time {
	if c.n < 1 || c.n > MaxTimes {
		return time.Time{} // Check reports why
	}
	if t.Before(c.from) {
		t = c.from.Add(-1)
	}
	next := c.tick(t)
	if next.IsZero() || next.After(c.end()) {
		return time.Time{}
	}
	return next
}

// end returns the last tick. Concurrent callers compute the same value, so it does not matter which
// of them stores it.
func (c counted) end() time.Time {
	if last := c.last.Load(); last != nil {
		return *last
	}
	last, left := c.tick(c.from.Add(-1)), c.n-1
	for ; left > 0; left-- {
		next := c.tick(last)
		if next.IsZero() {
			break // the inner schedule ends earlier
		}
		last = next
	}
	c.last.Store(&last)
	return last
}

func (c counted) tick(after time.Time) time.Time {
	next, err := Next(c.schedule, after)
	if err != nil {
		panic(brokenPart{fmt.Errorf("%s: %w", Describe(c.schedule), err)})
	}
	return next
}

func (c counted) String() string {
	return fmt.Sprintf("%s, %d times from %s", Describe(c.schedule), c.n, c.from.Format(time.RFC3339Nano))
}
