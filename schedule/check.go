package schedule

import (
	"errors"
	"fmt"
	"time"
)

// Check returns every fault of a schedule. Each error explains how to fix the fault. Check first
// validates the schedule and its parts. If it finds no fault, it then tests Next, and reports a
// schedule that never fires, a Next that panics, and a Next that returns a time that is not later.
// Only an At, a Times, or an Except of one of these may have no ticks left, because a program must
// still start after the last tick.
func Check(s Schedule) []error {
	if s == nil {
		return []error{errors.New("it is nil: set one")}
	}
	if faults := checkParts(s); len(faults) > 0 {
		return faults
	}
	from := time.Now()
	if Ends(s) {
		from = time.Time{}
	}
	next, err := Next(s, from)
	switch {
	case err != nil:
		return []error{fmt.Errorf("%v: %w: fix the schedule", Describe(s), err)}
	case next.IsZero():
		return []error{fmt.Errorf("%v never fires: its Next(now) is the zero time; use a schedule that does, or none "+
			"for what is only triggered", Describe(s))}
	}
	return nil
}

// CheckShared returns an error if hosts would disagree about the ticks of a schedule. Each host
// would then run its own ticks instead of sharing them. CheckShared finds two causes. One is the
// zone Local, which may differ between hosts. The other is a schedule whose next tick depends on
// when it is asked, such as an interval that counts from now. CheckShared does not find
// Every(d).From(time.Now()), which looks like a fixed anchor.
func CheckShared(s Schedule) error {
	if err := checkZones(s); err != nil {
		return err
	}
	switch s := s.(type) {
	case counted:
		return CheckShared(s.schedule) // before its start, a Times returns the same tick for any inner schedule
	case except:
		return CheckShared(s.schedule)
	}
	if common(s) {
		return nil
	}
	from := time.Now()
	next, err := Next(s, from)
	// Check reports an error. A tick this close may have been rounded.
	if err != nil || next.Sub(from) < 4*time.Microsecond {
		return nil
	}
	asked := from.Add(next.Sub(from) / 2)
	again, err := Next(s, asked)
	if err != nil || again.Equal(next) {
		return nil
	}
	return fmt.Errorf("%v: its next tick changes if it is asked %v later (%v, and %v), so every host would have "+
		"ticks of its own and run them all: "+
		"use schedule.Every or schedule.Cron, whose ticks are the same on all hosts",
		Describe(s), asked.Sub(from).Round(time.Millisecond), next.UTC().Format(time.RFC3339Nano),
		again.UTC().Format(time.RFC3339Nano))
}

// CheckSharedBlackout returns an error if a blackout is in the zone Local, because hosts could then
// disagree about it.
func CheckSharedBlackout(b Blackout) error { return checkZones(b) }

// checkZones returns an error if a schedule, a blackout, or a part of either is in the zone Local.
func checkZones(v any) error {
	zone := ""
	switch v := v.(type) {
	case crontab:
		zone = v.zone
	case daily:
		zone = v.zone
	case dailyWindow:
		zone = v.zone
	case weekdays:
		zone = v.zone
	case dates:
		zone = v.zone
	case counted:
		return checkZones(v.schedule)
	case except:
		if err := checkZones(v.schedule); err != nil {
			return err
		}
		for _, b := range v.blackouts {
			if err := checkZones(b); err != nil {
				return err
			}
		}
	}
	if zone != localZone {
		return nil
	}
	return fmt.Errorf("%s: hosts may differ in their local time, and must agree on every tick: name a zone, such as "+
		"\"Europe/Berlin\", or \"\" for UTC", Describe(v))
}

// common reports whether this package made the schedule. All hosts agree on the ticks of such a
// schedule.
func common(s Schedule) bool {
	switch s.(type) {
	case Interval, FixedDelay, crontab, daily, instants:
		return true
	}
	return false
}

// CheckBlackout returns every fault of a blackout. Each error explains how to fix the fault.
// CheckBlackout first calls the blackout's own Check. If that finds no fault, it reports an Until
// that panics or returns an end that is not later.
func CheckBlackout(b Blackout) []error {
	if b == nil {
		return []error{errors.New("blackout: it is nil: take it out")}
	}
	faults := checkParts(b)
	if len(faults) == 0 {
		if _, err := askBlackout(b, time.Now()); err != nil {
			faults = append(faults, fmt.Errorf("blackout %s: %w", Describe(b), err))
		}
	}
	return faults
}

// checkParts calls the Check method of a schedule or a blackout, and returns each fault as a
// separate error.
func checkParts(v any) (faults []error) {
	c, ok := v.(Checker)
	if !ok {
		return nil
	}
	var panicked error
	func() {
		defer recovered("its Check", &panicked)
		faults = split(c.Check())
	}()
	if panicked != nil {
		return []error{fmt.Errorf("%T: %w", v, panicked)}
	}
	return faults
}

// split returns the errors that errors.Join has joined.
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
