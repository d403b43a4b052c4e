package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Except is a schedule without the ticks that fall in one of the blackouts. Business days are
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

// A brokenPart is the value that Next panics with when a user-defined part of an Except fails,
// because Next returns no error. The function Next turns it back into one.
type brokenPart struct{ error }

func (e except) String() string {
	var bs []string
	for _, b := range e.blackouts {
		bs = append(bs, Describe(b))
	}
	return fmt.Sprintf("%s, except %s", Describe(e.schedule), strings.Join(bs, ", "))
}
