package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

func zone(t *testing.T, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// Daily has the same ticks as the cron expression for that time, even on days with clock changes.
//
// Fails when onceADay is off by a day at midnight.
func TestDailyIsCron(t *testing.T) {
	zones := dstZones
	if testing.Short() || testkit.RaceDetector {
		zones = []string{"Europe/Berlin", "America/Havana", "Pacific/Apia"}
	}
	for _, zone := range zones {
		for _, c := range []struct{ clock, spec string }{{"00:00", "0 0 * * *"}, {"00:30", "30 0 * * *"},
			{"02:30", "30 2 * * *"}, {"01:15:10", "10 15 1 * * *"}, {"23:59:59", "59 59 23 * * *"}} {
			daily, cron := Daily(c.clock, zone), Cron(c.spec, zone)
			at := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)
			for range 3653 {
				next := daily.Next(at)
				if want := cron.Next(at); !next.Equal(want) || !next.After(at) {
					t.Fatalf("%s in %s: after %v comes %v, want %v", c.clock, zone, at, next, want)
				}
				if early := daily.Next(next.Add(-1)); !early.Equal(next) {
					t.Fatalf("%s in %s: a nanosecond before %v comes %v", c.clock, zone, next, early)
				}
				at = next
			}
		}
	}
}

// The clock changes that the documentation describes, as explicit cases.
//
// Fails when one direction of the change is handled differently.
func TestTheNightsOfTheChange(t *testing.T) {
	for _, c := range []struct {
		what, spec, zone, from string
		want                   string // the ticks of the next 26 hours
	}{
		{"gap", "30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "03-28 03:00 CEST"},
		{"gap, several times", "*/20 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "03-28 03:00 CEST"},
		{"gap, and due after the gap anyway", "0,30 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z",
			"03-28 03:00 CEST, 03-28 03:30 CEST"},
		{"gap at midnight", "0 0 * * *", "America/Havana", "2027-03-13T12:00:00Z", "03-14 01:00 CDT"},
		{"gap, hourly", "0 * * * *", "Europe/Berlin", "2027-03-27T23:30:00Z",
			"03-28 01:00 CET, 03-28 03:00 CEST, 03-28 04:00 CEST"},
		{"gap of half an hour, hourly", "15 * * * *", "Australia/Lord_Howe", "2027-10-02T14:00:00Z",
			"10-03 01:15 +1030, 10-03 02:30 +11, 10-03 03:15 +11"},
		{"overlap", "30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", "10-31 02:30 CEST"},
		{"overlap at midnight", "30 0 * * *", "America/Havana", "2027-11-06T12:00:00Z", "11-07 00:30 CDT"},
		{"overlap, hourly", "30 * * * *", "Europe/Berlin", "2027-10-30T23:45:00Z",
			"10-31 02:30 CEST, 10-31 02:30 CET, 10-31 03:30 CET"},
		{"a day that is none", "0 12 30 12 *", "Pacific/Apia", "2011-12-30T00:00:00Z", "12-31 00:00 +14"},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		s := Cron(c.spec, c.zone)
		want := strings.Split(c.want, ", ")
		until := from.Add(24 * time.Hour)
		var got []string
		for at := s.Next(from); at.Before(until) && len(got) < len(want) || len(got) == 0; at = s.Next(at) {
			got = append(got, at.Format("01-02 15:04 MST"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v: %q, want %q", c.what, s, got, want)
		}
	}
}

// At is due once at each instant, in ascending order, whatever the order and the zones of its
// arguments.
//
// Fails when At does not sort its arguments, or when Next returns the instant that it was called
// with.
func TestAt(t *testing.T) {
	a := time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC)
	b, c := a.Add(time.Hour), a.Add(48*time.Hour)
	s := At(c, a, b.In(zone(t, "Asia/Tokyo")), a)
	var got []time.Time
	for at := s.Next(time.Time{}); !at.IsZero(); at = s.Next(at) {
		got = append(got, at)
	}
	if !slices.EqualFunc(got, []time.Time{a, b, c}, time.Time.Equal) {
		t.Errorf("%v", got)
	}
	if next := s.Next(c.Add(-1)); !next.Equal(c) {
		t.Errorf("%v", next)
	}
	if got := Describe(s); got != "at 2027-05-01T12:00:00Z, 2027-05-01T12:00:00Z, 2027-05-01T22:00:00+09:00, 1 more" {
		t.Error(got)
	}
}

// A malformed Daily or At is refused with an error that shows where the mistake is.
//
// Fails when parseClock accepts an hour with one digit, or the hour 24.
func TestCalendarsRefuse(t *testing.T) {
	const two = `write the time as "02:30" or "02:30:15", with two digits each`
	for _, c := range []struct {
		s    Schedule
		want string
	}{
		{Daily("", ""), "Daily \"\": " + two + "\n\t\n\t^"},
		{Daily("2:30", ""), "Daily \"2:30\": " + two + "\n\t2:30\n\t ^"},
		{Daily("02.30", ""), "Daily \"02.30\": " + two + "\n\t02.30\n\t  ^"},
		{Daily("02:3", ""), "Daily \"02:3\": " + two + "\n\t02:3\n\t    ^"},
		{Daily("02:30:", ""), "Daily \"02:30:\": " + two + "\n\t02:30:\n\t      ^"},
		{Daily("02:30:15.5", ""),
			"Daily \"02:30:15.5\": something follows the time: write it as \"02:30\" or \"02:30:15\"\n" +
				"\t02:30:15.5\n\t        ^"},
		{Daily("24:00", ""), "Daily \"24:00\": the hour is 00 to 23\n\t24:00\n\t^"},
		{Daily("02:60", ""), "Daily \"02:60\": the minute is 00 to 59\n\t02:60\n\t   ^"},
		{Daily("02:30:60", ""), "Daily \"02:30:60\": the second is 00 to 59\n\t02:30:60\n\t      ^"},
		{At(), "At(): it never fires: give it an instant"},
		{At(time.Now(), time.Time{}),
			"At: one of its instants is the zero time, which is no instant: set it, or take it out"},
		{Every(0), "Every(0s): the period must be at least 1ms"},
		{Every(time.Hour).From(time.Time{}),
			"every 1h0m0s from 0001-01-01T00:00:00Z: the grid must begin between the years 1800 and 2200"},
		{Every(0).From(time.Time{}),
			"Every(0s): the period must be at least 1ms\n" +
				"every 0s from 0001-01-01T00:00:00Z: the grid must begin between the years 1800 and 2200"},
	} {
		if err := c.s.(Checker).Check(); err == nil || err.Error() != c.want {
			t.Errorf("%v\nwant\n%s", err, c.want)
		}
	}
	if err := Daily("x", "y").(Checker).Check(); len(split(err)) != 2 {
		t.Errorf("both faults are wanted: %v", err)
	}
}

// From sets the start of the grid, and Offset shifts the grid. After either, the timer's name no
// longer shifts it.
//
// Fails when Interval.of shifts an interval that has an anchor or offset, or when the grid has a
// tick before its start.
func TestIntervalsArePlaced(t *testing.T) {
	three := Every(24 * time.Hour).Offset(3 * time.Hour).of("x")
	now := time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC)
	if next := three.Next(now); !next.Equal(time.Date(2027, 5, 2, 3, 0, 0, 0, time.UTC)) {
		t.Error(next)
	}
	monday := time.Date(2027, 5, 3, 9, 0, 0, 0, zone(t, "Europe/Berlin"))
	sprint := Every(14 * 24 * time.Hour).From(monday).of("x")
	at := now.AddDate(-1, 0, 0)
	for i := range 5 { // the first tick is the anchor itself
		at = sprint.Next(at)
		if want := monday.Add(time.Duration(i) * 14 * 24 * time.Hour); !at.Equal(want) {
			t.Fatalf("%v, want %v", at, want)
		}
	}
	both := Every(time.Hour).From(monday).Offset(5 * time.Minute)
	if next := both.Next(time.Time{}); !next.Equal(monday.Add(5 * time.Minute)) {
		t.Error(next)
	}
	if other := Every(time.Hour).Offset(5 * time.Minute).From(monday); other != both {
		t.Errorf("%v is not %v", other, both)
	}
	if last, missed := both.skip(both.Next(monday), monday.Add(5*time.Hour)); missed != 4 ||
		!last.Equal(monday.Add(4*time.Hour+5*time.Minute)) {
		t.Error(last, missed)
	}
	if !Every(time.Hour).of("a").Next(now).Equal(Every(time.Hour).of("a").Next(now)) ||
		Every(time.Hour).of("a").Next(now).Equal(Every(time.Hour).of("b").Next(now)) {
		t.Error("an interval without a place is spread by name")
	}
}

// Different schedules have different texts.
func TestSchedulesDescribeThemselves(t *testing.T) {
	monday := time.Date(2027, 5, 3, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		s    any
		want string
	}{
		{Every(time.Minute), "every 1m0s"},
		{Every(24 * time.Hour).Offset(3 * time.Hour), "every 24h0m0s, offset 3h0m0s"},
		{Every(time.Hour).From(monday).Offset(time.Minute), "every 1h0m0s from 2027-05-03T09:00:00Z, offset 1m0s"},
		{Every(time.Hour).of("orders"), "every 1h0m0s"},
		{Cron("0 2 * * *", "Europe/Berlin"), `cron "0 2 * * *" in Europe/Berlin`},
		{Cron("@daily", ""), `cron "@daily" in UTC`},
		{Daily("02:30", "Europe/Berlin"), "daily at 02:30 in Europe/Berlin"},
		{At(monday), "at 2027-05-03T09:00:00Z"},
		{Except(Daily("08:00", ""), Weekdays("", time.Saturday, time.Sunday, time.Sunday),
			Dates("", "2027-12-24", "2027-12-25"), DailyWindow("22:00", "06:00", "Europe/Berlin"),
			Between(monday, monday.Add(time.Hour)), BlackoutFunc(func(time.Time) bool { return false })),
			"daily at 08:00 in UTC, except Saturday, Sunday in UTC, 2027-12-24, 2027-12-25 in UTC, daily 22:00 to " +
				"06:00 in Europe/Berlin, " +
				"between 2027-05-03T09:00:00Z and 2027-05-03T10:00:00Z, when a func says so"},
		{Except(generic{Every(time.Hour)}, Dates("", "2027-01-01", "2027-01-02", "2027-01-03", "2027-01-04")),
			"schedule.generic, except 2027-01-01, 2027-01-02, 2027-01-03 and 1 more in UTC"},
	} {
		if got := Describe(c.s); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}

// Calendars, and intervals of a day or longer, catch up. Shorter intervals and user-defined
// schedules do not.
//
// Fails when CatchesUp returns false for a calendar or a long interval.
func TestCatchesUp(t *testing.T) {
	never := Weekdays("", time.Sunday)
	for _, c := range []struct {
		s    Schedule
		want bool
	}{
		{nil, false}, {Every(24*time.Hour - time.Millisecond), false}, {Every(24 * time.Hour), true},
		{Every(24 * time.Hour).Offset(time.Hour), true}, {Except(Every(7*24*time.Hour), never), true},
		{generic{Daily("02:30", "")}, false},
		{Cron("0 2 * * *", ""), true}, {Daily("02:30", ""), true}, {At(time.Now()), true},
		{Except(Daily("02:30", ""), never), true}, {Except(Except(At(time.Now()), never), never), true},
		{Except(Every(time.Minute), never), false},
	} {
		if got := CatchesUp(c.s); got != c.want {
			t.Errorf("%v: %v", c.s, got)
		}
	}
}
