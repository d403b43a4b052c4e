package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Except is a schedule without the ticks that fall into one of the blackouts. Business days are
// Except(Daily("08:00", zone), Weekdays(zone, time.Saturday, time.Sunday), Dates(zone,
// "2026-12-25")). The removed ticks do not exist: they count neither as missed nor as skipped.
//
// The schedule never fires if no tick is left for 100 years, or if its next 500,000 ticks (or
// minutes, for a BlackoutFunc) are all blacked out.
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

// Next implements Schedule. It jumps from tick to tick and from the end of one blackout to the
// next.
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
		t = until.Add(-1) // the end of a blackout is no longer in it
	}
	return time.Time{}
}

// A brokenPart is the value that the method Next panics with when a user-defined part of an Except
// fails, because that method returns no error. The function Next turns it back into an error.
type brokenPart struct{ error }

func (e except) String() string {
	var bs []string
	for _, b := range e.blackouts {
		bs = append(bs, Describe(b))
	}
	return fmt.Sprintf("%s, except %s", Describe(e.schedule), strings.Join(bs, ", "))
}

// Times is a schedule that ends: it has the first n ticks of another schedule that are due at from
// or later. Times(3, launch, Daily("08:00", zone)) is due on three mornings and never again. A tick
// counts whether it ran or not, because a schedule knows nothing of runs.
//
// The instant from must be the same on all hosts and at every start of the program, because the
// ticks are counted from it. Times(3, time.Now(), s) begins anew at each start, so every host has
// ticks of its own, and no check detects it. As with At, ticks in the past are not a fault. n is 1
// to MaxTimes.
func Times(n int, from time.Time, schedule Schedule) Schedule {
	return counted{schedule, n, from.Round(0), new(atomic.Pointer[time.Time])}
}

// MaxTimes is the largest n of Times, because each host counts that far when it first asks.
const MaxTimes = 1000

type counted struct {
	schedule Schedule
	n        int
	from     time.Time
	last     *atomic.Pointer[time.Time] // the last tick, once it has been computed
}

// of returns the same ticks of another schedule.
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
		return time.Time{} // Check says why
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

// end returns the last tick. All callers compute the same one, so it does not matter which of them
// stores it.
func (c counted) end() time.Time {
	if last := c.last.Load(); last != nil {
		return *last
	}
	last, left := c.tick(c.from.Add(-1)), c.n-1
	for ; left > 0; left-- {
		next := c.tick(last)
		if next.IsZero() {
			break // the schedule itself ends before
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
