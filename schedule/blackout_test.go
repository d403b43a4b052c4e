package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// An instant is in a blackout if the wall clock shows a time or a date in the blackout, and Until
// returns the first minute that is not. The test compares every minute of days with clock changes.
//
// Fails when a window uses the offset at its start to compute its end, when the second pass of a
// repeated hour is left out, or when a window over midnight ends at midnight.
func TestBlackoutsAreWhatTheClockShows(t *testing.T) {
	clock := func(from, to int) func(time.Time) bool { // from and to are minutes of the day
		return func(wall time.Time) bool {
			m := wall.Hour()*60 + wall.Minute()
			if from < to {
				return m >= from && m < to
			}
			return m >= from || m < to
		}
	}
	days := map[string]bool{"2011-12-29": true, "2011-12-30": true, "2012-03-25": true, "2012-03-26": true,
		"2012-04-01": true, "2012-10-28": true, "2012-03-11": true, "2012-11-04": true}
	var dates []string
	for d := range days {
		dates = append(dates, d)
	}
	years := 4
	if testing.Short() || testkit.RaceDetector {
		years = 1
	}
	nights, ends := 0, 0
	for _, zone := range dstZones {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		of := []struct {
			b  Blackout
			in func(wall time.Time) bool
		}{
			{DailyWindow("22:00", "06:00", zone), clock(22*60, 6*60)},
			{DailyWindow("02:15", "02:45", zone), clock(135, 165)},
			{DailyWindow("01:30", "03:10", zone), clock(90, 190)},
			{DailyWindow("00:30", "02:00", zone), clock(30, 120)},
			{DailyWindow("23:30", "00:30", zone), clock(23*60+30, 30)},
			{DailyWindow("03:00", "02:30", zone), clock(180, 150)},
			{DailyWindow("18:00", "00:00", zone), clock(18*60, 0)},
			{Weekdays(zone, time.Saturday, time.Sunday), func(w time.Time) bool {
				return w.Weekday() == time.Sunday ||
					w.Weekday() == time.Saturday
			}},
			{Weekdays(zone, time.Sunday, time.Wednesday), func(w time.Time) bool {
				return w.Weekday() == time.Sunday ||
					w.Weekday() == time.Wednesday
			}},
			{Dates(zone, dates...), func(w time.Time) bool { return days[w.Format(time.DateOnly)] }},
		}
		for change := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC); ; {
			_, change = change.In(loc).ZoneBounds()
			if change.IsZero() || change.Year() >= 2011+years+1 {
				break
			}
			nights++
			for _, e := range of {
				var end time.Time // the end of the blackout that contains the following minutes
				first := change.Add(-40 * time.Hour)
				for at := change.Add(80 * time.Hour); !at.Before(first); at = at.Add(-time.Minute) {
					in := e.in(at.In(loc))
					until := e.b.Until(at)
					if in == until.IsZero() {
						t.Fatalf("%v: at %v it is in: %v, but Until says %v", e.b, at.In(loc), in, until)
					}
					switch {
					case !in:
						end = at
					case !end.IsZero():
						ends++
						if !until.Equal(end) {
							t.Fatalf("%v: at %v Until is %v, want %v", e.b, at.In(loc), until, end.In(loc))
						}
					}
				}
			}
		}
	}
	t.Logf("%d nights, %d ends", nights, ends)
}

// A window is exact to the second, and contains its first nanosecond.
func TestWindowsAreExact(t *testing.T) {
	w := DailyWindow("12:00:30", "12:00:40", "Europe/Berlin")
	from := time.Date(2027, 5, 3, 12, 0, 30, 0, zone(t, "Europe/Berlin"))
	to := from.Add(10 * time.Second)
	for _, c := range []struct {
		at, want time.Time
	}{{from.Add(-1), time.Time{}}, {from, to}, {from.UTC().Add(1), to}, {to.Add(-1), to}, {to, time.Time{}}} {
		if got := w.Until(c.at); !got.Equal(c.want) {
			t.Errorf("Until(%v) = %v, want %v", c.at, got, c.want)
		}
	}
	b := Between(from, to)
	for _, c := range []struct {
		at, want time.Time
	}{{from.Add(-1), time.Time{}}, {from, to}, {to.Add(-1), to}, {to, time.Time{}}} {
		if got := b.Until(c.at); !got.Equal(c.want) {
			t.Errorf("between: Until(%v) = %v, want %v", c.at, got, c.want)
		}
	}
	if got := BlackoutFunc(from.Equal).Until(from); !got.Equal(from.Add(30 * time.Second)) {
		t.Errorf("func: %v", got)
	}
}

// In years after the end of the zone table, Go's ZoneBounds ends a leap year one day early.
//
// Fails when segment relies on ZoneBounds.
func TestLeapYearsByRule(t *testing.T) {
	for name := range rules {
		loc := byRule(t, name)
		s, w := Cron("30 23 * * *", "").(crontab), DailyWindow("22:00", "06:00", "").(dailyWindow)
		s.loc, w.loc = loc, loc
		at := time.Date(2028, 12, 29, 0, 0, 0, 0, loc)
		for day := range 8 {
			at = s.Next(at)
			if want := time.Date(2028, 12, 29+day, 23, 30, 0, 0, loc); !at.Equal(want) {
				t.Fatalf("%s: %v, want %v", name, at, want)
			}
			if until := w.Until(at); until.Sub(at) != 6*time.Hour+30*time.Minute {
				t.Fatalf("%s: at %v the window lasts until %v", name, at, until)
			}
		}
	}
}

// A malformed blackout is refused with an error that shows where the mistake is.
func TestBlackoutsRefuse(t *testing.T) {
	const two = `write the time as "02:30" or "02:30:15", with two digits each`
	now := time.Date(2027, 5, 3, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		b    Blackout
		want string
	}{
		{DailyWindow("22", "06:00", ""), "DailyWindow \"22\": " + two + "\n\t22\n\t  ^"},
		{DailyWindow("22:00", "30:00", ""), "DailyWindow \"30:00\": the hour is 00 to 23\n\t30:00\n\t^"},
		{DailyWindow("22:00", "22:00:00", ""),
			"DailyWindow \"22:00 to 22:00:00\": it ends when it begins, which is either the whole day or nothing: " +
				"change one of the times, or remove it\n\t22:00 to 22:00:00\n\t         ^"},
		{Weekdays(""), "Weekdays: it has no day: give it one, or leave it out"},
		{Weekdays("", 7), "Weekdays: 7 is not a day of the week: use time.Sunday to time.Saturday\n" +
			"Weekdays: it has no day: give it one, or leave it out"},
		{Weekdays("", 0, 1, 2, 3, 4, 5, 6),
			"Weekdays: it has every day of the week, so nothing would ever run: take one out"},
		{Dates(""), "Dates: it has no day: give it one, or leave it out"},
		{Dates("", "25.12.2026"), "Dates \"25.12.2026\": write the day as \"2026-12-25\"\n\t25.12.2026\n\t  ^"},
		{Dates("", "2026-12-25", "2026-2-3"),
			"Dates \"2026-2-3\": write the day as \"2026-12-25\"\n\t2026-2-3\n\t      ^"},
		{Dates("", "2026-12"), "Dates \"2026-12\": write the day as \"2026-12-25\"\n\t2026-12\n\t       ^"},
		{Dates("", "2026-12-25T00:00"),
			"Dates \"2026-12-25T00:00\": something follows the day: write it as \"2026-12-25\"\n" +
				"\t2026-12-25T00:00\n\t          ^"},
		{Dates("", "2026-13-01"), "Dates \"2026-13-01\": the month is 01 to 12\n\t2026-13-01\n\t     ^"},
		{Dates("", "2026-02-29"), "Dates \"2026-02-29\": this month has no such day\n\t2026-02-29\n\t        ^"},
		{Between(now, now), "between 2027-05-03T09:00:00Z and 2027-05-03T09:00:00Z: it ends before it has begun: " +
			"swap the two"},
		{Between(now, time.Time{}),
			"between 2027-05-03T09:00:00Z and 0001-01-01T00:00:00Z: one of its instants is the zero time: set both"},
		{BlackoutFunc(nil), "BlackoutFunc: it is nil: give it a function"},
	} {
		err := c.b.(Checker).Check()
		if err == nil || err.Error() != c.want {
			t.Errorf("%v\nwant\n%s", err, c.want)
		}
		if _, isWall := c.b.(interface{ Until(time.Time) time.Time }); isWall && err != nil && c.want[0] != 'b' &&
			c.want[0] != 'B' {
			if until := c.b.Until(now); !until.IsZero() {
				t.Errorf("%v is refused, and in force until %v", c.b, until)
			}
		}
	}
}

// If a user-defined blackout panics or returns an end that is too early, BlackedOut returns an
// error. If several blackouts contain an instant, the latest end counts.
//
// Fails when BlackedOut does not recover from a panic.
func TestBlackedOut(t *testing.T) {
	now := time.Date(2027, 5, 3, 9, 0, 0, 0, time.UTC)
	long, short := Between(now.Add(-time.Hour), now.Add(time.Hour)), Between(now.Add(-time.Hour), now.Add(time.Minute))
	for _, c := range []struct {
		bs   []Blackout
		want time.Time
		by   Blackout
		err  string
	}{
		{nil, time.Time{}, nil, ""},
		{[]Blackout{Weekdays("", time.Sunday)}, time.Time{}, nil, ""},
		{[]Blackout{short, Weekdays("", time.Sunday), long, short}, now.Add(time.Hour), long, ""},
		{[]Blackout{short, BlackoutFunc(func(time.Time) bool { panic("no") })}, time.Time{}, nil,
			"blackout when a func says so: its Until panicked: no"},
		{[]Blackout{stuckBlackout{}}, time.Time{}, nil,
			"blackout schedule.stuckBlackout: its Until(2027-05-03T09:00:00Z) returned 2027-05-03T09:00:00Z, which " +
				"is not later"},
	} {
		until, by, err := BlackedOut(c.bs, now)
		if !until.Equal(c.want) || by != c.by || err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%v, %v, %v; want %v, %v, %s", until, by, err, c.want, c.by, c.err)
		}
	}
	for _, c := range []struct {
		b    Blackout
		want string
	}{
		{nil, "it is nil"}, {stuckBlackout{}, "which is not later"}, {badChecker{}, "its Check panicked: no"},
		{BlackoutFunc(nil), "give it a function"}, {BlackoutFunc(func(time.Time) bool { panic("no") }),
			"its Until panicked: no"},
	} {
		if faults := CheckBlackout(c.b); len(faults) != 1 || !strings.Contains(faults[0].Error(), c.want) {
			t.Errorf("%v, want %s", faults, c.want)
		}
	}
}

type stuckBlackout struct{}

func (stuckBlackout) Until(t time.Time) time.Time { return t }

type badChecker struct{ stuckBlackout }

func (badChecker) Check() error { panic("no") }
