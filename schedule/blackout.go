package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Blackout is a period in which no run starts.
//
// If t is not in the blackout, Until returns the zero time. Otherwise Until returns a later time:
// either the end of the blackout, or an earlier time at which to call Until again. Every host must
// get the same result. Therefore t is always in UTC, as for a Schedule, and Until must not block.
//
// A Blackout may also implement Checker, and fmt.Stringer, whose text is shown to people.
type Blackout interface {
	Until(t time.Time) time.Time
}

// DailyWindow returns a blackout that lasts from one time of day to another, every day, in the
// zone: DailyWindow("22:00", "06:00", "Europe/Berlin"). If to is earlier than from, the window
// spans midnight. The end is exclusive. On days on which clocks change, the window contains every
// instant at which the clocks show a time in the window. It therefore covers both passes of a
// repeated hour.
func DailyWindow(from, to, zone string) Blackout {
	start, startErr := parseClock("DailyWindow", from)
	end, endErr := parseClock("DailyWindow", to)
	w := dailyWindow{from: from, to: to, wallBlackout: wallBlackout{zone: zone}}
	loc, zoneErr := loadZone(zone)
	w.loc, w.err = loc, errors.Join(startErr, endErr, zoneErr)
	if startErr == nil && endErr == nil && start == end {
		w.err = errors.Join(w.err, fault("DailyWindow", from+" to "+to, len(from+" to "),
			"it ends when it begins, which is either the whole day or nothing: change one of the times, or remove it"))
	}
	w.end = func(wall time.Time) time.Time {
		midnight := wall.Truncate(24 * time.Hour)
		clock := wall.Sub(midnight)
		switch {
		case start < end && clock >= start && clock < end, start > end && clock < end:
			return midnight.Add(end)
		case start > end && clock >= start:
			return midnight.Add(24*time.Hour + end)
		}
		return time.Time{}
	}
	return w
}

type dailyWindow struct {
	from, to string
	wallBlackout
}

func (d dailyWindow) String() string {
	return fmt.Sprintf("daily %s to %s in %s", d.from, d.to, zoneName(d.zone))
}

// Weekdays returns a blackout on the given days of every week, from midnight to midnight in the
// zone.
func Weekdays(zone string, days ...time.Weekday) Blackout {
	w := weekdays{wallBlackout: wallBlackout{zone: zone}}
	loc, err := loadZone(zone)
	w.loc = loc
	var in [7]bool
	for _, d := range days {
		if d < time.Sunday || d > time.Saturday {
			err = errors.Join(err, fmt.Errorf("Weekdays: %d is not a day of the week: use time.Sunday to time.Saturday",
				int(d)))
			continue
		}
		if !in[d] {
			in[d] = true
			w.days = append(w.days, d)
		}
	}
	switch len(w.days) {
	case 0:
		err = errors.Join(err, errors.New("Weekdays: it has no day: give it one, or leave it out"))
	case 7:
		err = errors.Join(err,
			errors.New("Weekdays: it has every day of the week, so nothing would ever run: take one out"))
	}
	w.err = err
	w.end = wholeDays(func(day time.Time) bool { return in[day.Weekday()] })
	return w
}

type weekdays struct {
	days []time.Weekday
	wallBlackout
}

func (w weekdays) String() string {
	var names []string
	for _, d := range w.days {
		names = append(names, d.String())
	}
	return fmt.Sprintf("%s in %s", strings.Join(names, ", "), zoneName(w.zone))
}

// Dates returns a blackout on the given dates, from midnight to midnight in the zone:
// Dates("Europe/Berlin", "2026-12-25", "2026-12-26").
func Dates(zone string, days ...string) Blackout {
	d := dates{days: slices.Clone(days), wallBlackout: wallBlackout{zone: zone}}
	loc, err := loadZone(zone)
	d.loc = loc
	in := map[int64]bool{}
	for _, text := range days {
		day, fault := parseDate(text)
		if fault != nil {
			err = errors.Join(err, fault)
			continue
		}
		in[day.Unix()] = true
	}
	if len(days) == 0 {
		err = errors.Join(err, errors.New("Dates: it has no day: give it one, or leave it out"))
	}
	d.err = err
	d.end = wholeDays(func(day time.Time) bool { return in[day.Unix()] })
	return d
}

type dates struct {
	days []string
	wallBlackout
}

func (d dates) String() string {
	const shown = 3
	s := strings.Join(d.days[:min(shown, len(d.days))], ", ")
	if more := len(d.days) - shown; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s in %s", s, zoneName(d.zone))
}

// parseDate parses a date such as 2026-12-25.
func parseDate(text string) (time.Time, error) {
	const layout = "0000-00-00"
	for i, c := range []byte(text) {
		switch {
		case i == len(layout):
			return time.Time{}, fault("Dates", text, i, `something follows the day: write it as "2026-12-25"`)
		case layout[i] == '-' && c != '-', layout[i] == '0' && (c < '0' || c > '9'):
			return time.Time{}, fault("Dates", text, i, `write the day as "2026-12-25"`)
		}
	}
	if len(text) < len(layout) {
		return time.Time{}, fault("Dates", text, len(text), `write the day as "2026-12-25"`)
	}
	if _, err := time.Parse("2006-01", text[:7]); err != nil {
		return time.Time{}, fault("Dates", text, 5, "the month is 01 to 12")
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}, fault("Dates", text, 8, "this month has no such day")
	}
	return day, nil
}

// Between returns a blackout from one instant to another. The end is exclusive.
func Between(from, to time.Time) Blackout { return between{from.Round(0), to.Round(0)} }

type between struct{ from, to time.Time }

// Check implements Checker.
func (b between) Check() error {
	switch {
	case b.from.IsZero() || b.to.IsZero():
		return fmt.Errorf("%v: one of its instants is the zero time: set both", b)
	case !b.to.After(b.from):
		return fmt.Errorf("%v: it ends before it has begun: swap the two", b)
	}
	return nil
}

// Until implements Blackout.
func (b between) Until(t time.Time) time.Time {
	if t.Before(b.from) || !t.Before(b.to) {
		return time.Time{}
	}
	return b.to
}

func (b between) String() string {
	return fmt.Sprintf("between %s and %s", b.from.Format(time.RFC3339Nano), b.to.Format(time.RFC3339Nano))
}

// A BlackoutFunc reports whether an instant is in the blackout. The function does not tell when the
// blackout ends. Until therefore returns the next full minute in UTC, and Except asks again at that
// time. If the function returns true for a tick, Except also drops the later ticks of the same
// minute without calling the function.
type BlackoutFunc func(time.Time) bool

// Check implements Checker.
func (b BlackoutFunc) Check() error {
	if b == nil {
		return errors.New("BlackoutFunc: it is nil: give it a function")
	}
	return nil
}

// Until implements Blackout.
func (b BlackoutFunc) Until(t time.Time) time.Time {
	if !b(t) {
		return time.Time{}
	}
	return t.Round(0).Truncate(time.Minute).Add(time.Minute)
}

func (b BlackoutFunc) String() string { return "when a func says so" }

// A wallBlackout is a blackout that is defined in the wall time of a zone.
type wallBlackout struct {
	zone string
	loc  *time.Location
	end  func(wall time.Time) time.Time // the wall time of the end if no clock changes; zero if not blacked out
	err  error
}

// Check implements Checker.
func (w wallBlackout) Check() error { return w.err }

// Until implements Blackout. It stops at each clock change and calls end again.
func (w wallBlackout) Until(t time.Time) time.Time {
	if w.err != nil {
		return time.Time{}
	}
	var until time.Time
	for range maxSegments {
		wall := shown(t, offsetAt(t, w.loc))
		end := w.end(wall)
		if end.IsZero() {
			break
		}
		over := t.Round(0).Add(end.Sub(wall))
		if _, changed := segment(t, w.loc); !changed.IsZero() && changed.Before(over) {
			over = changed
		}
		t, until = over, over.In(w.loc)
	}
	return until
}

// wholeDays returns a function for wallBlackout.end. That function returns the end of the day if in
// reports true for the day.
func wholeDays(in func(day time.Time) bool) func(wall time.Time) time.Time {
	return func(wall time.Time) time.Time {
		day := wall.Truncate(24 * time.Hour)
		if !in(day) {
			return time.Time{}
		}
		return day.AddDate(0, 0, 1)
	}
}

// BlackedOut returns the latest end of the blackouts that contain t, and the blackout with that
// end. If no blackout contains t, it returns the zero time. It calls Until in UTC. It returns an
// error if a blackout panics or returns an end that is not after t.
func BlackedOut(bs []Blackout, t time.Time) (until time.Time, by Blackout, err error) {
	for _, b := range bs {
		end, err := askBlackout(b, t)
		if err != nil {
			return time.Time{}, nil, fmt.Errorf("blackout %s: %w", Describe(b), err)
		}
		if end.After(until) {
			until, by = end, b
		}
	}
	return until, by, nil
}

// askBlackout calls Until in UTC, as Next does. It returns an error if Until panics or returns an
// end that is not after t.
func askBlackout(b Blackout, t time.Time) (until time.Time, err error) {
	t = t.Round(0).UTC()
	defer recovered("its Until", &err)
	until = b.Until(t)
	if !until.IsZero() && !until.After(t) {
		return time.Time{}, fmt.Errorf("its Until(%v) returned %v, which is not later", t.Format(time.RFC3339Nano),
			until.Format(time.RFC3339Nano))
	}
	return until, nil
}
