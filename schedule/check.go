package schedule

import (
	"errors"
	"fmt"
	"time"
)

// Check returns every fault of a schedule, each with how to mend it: what its own Check and those
// of its parts say, and otherwise that it never fires, or that its Next panics or returns a time
// that is not later. Only an At, or an Except of one, may have no tick left: a program that is
// started after the last one must start all the same.
func Check(s Schedule) []error {
	if s == nil {
		return []error{errors.New("it is nil: set one")}
	}
	if faults := checkParts(s); len(faults) > 0 {
		return faults
	}
	from := time.Now()
	if ends(s) {
		from = time.Time{}
	}
	next, err := Next(s, from)
	switch {
	case err != nil:
		return []error{fmt.Errorf("%v: %w: mend the schedule", Describe(s), err)}
	case next.IsZero():
		return []error{fmt.Errorf("%v never fires: its Next(now) is the zero time; use a schedule that does, or none for what is only triggered", Describe(s))}
	}
	return nil
}

// CheckShared returns an error if the next tick of a schedule is another when it is asked a little
// later, as that of an interval from now on is: then every host has ticks of its own, and hosts
// that are to share each tick would all run theirs. Schedules made by this package are never
// refused, not even Every(d).From(time.Now()), of which it cannot be told.
func CheckShared(s Schedule) error {
	if common(s) {
		return nil
	}
	from := time.Now()
	next, err := Next(s, from)
	if err != nil || next.Sub(from) < 4*time.Microsecond { // Check says so; or it was rounded
		return nil
	}
	asked := from.Add(next.Sub(from) / 2)
	again, err := Next(s, asked)
	if err != nil || again.Equal(next) {
		return nil
	}
	return fmt.Errorf("%v: its next tick is another when it is asked %v later (%v, and %v), so every host would have ticks of its own and run them all: "+
		"use schedule.Every or schedule.Cron, whose ticks are the same on all hosts",
		Describe(s), asked.Sub(from).Round(time.Millisecond), next.UTC().Format(time.RFC3339Nano), again.UTC().Format(time.RFC3339Nano))
}

// ends reports whether a schedule may have come to its end, and is well made all the same.
func ends(s Schedule) bool {
	switch s := s.(type) {
	case instants:
		return true
	case except:
		return ends(s.schedule)
	}
	return false
}

// common reports whether a schedule is one of ours, whose ticks all hosts have in common.
func common(s Schedule) bool {
	switch s := s.(type) {
	case Interval, crontab, daily, instants:
		return true
	case except:
		return common(s.schedule)
	}
	return false
}

// CheckBlackout returns every fault of a blackout, each with how to mend it: what its own Check
// says, and otherwise that its Until panics or returns an end that is not later.
func CheckBlackout(b Blackout) []error {
	if b == nil {
		return []error{errors.New("blackout: it is nil: take it out")}
	}
	faults := checkParts(b)
	if len(faults) == 0 {
		if _, err := askBlackout(b, time.Now()); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// checkParts returns what the Check of a schedule or a blackout says, each fault by itself.
func checkParts(v any) (faults []error) {
	c, ok := v.(Checker)
	if !ok {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			faults = []error{fmt.Errorf("%T: its Check panicked: %v", v, p)}
		}
	}()
	return split(c.Check())
}

// split takes apart what errors.Join has joined.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, split(err)...)
	}
	return all
}
