package schedule

import (
	"testing"
	"time"
)

type plainSchedule struct{ next *time.Time }

func (s *plainSchedule) Next(time.Time) time.Time { return *s.next }

type brokenText struct{ Schedule }

func (brokenText) String() string { panic("no text") }

// Identity must be the same on every host and after every update of Go or tickslot. Otherwise a
// deployment would forget which ticks were missed. Every part of a schedule changes the identity.
//
// Fails when Identity returns the text for people, which is the same for two lists of dates that
// begin with the same dates.
func TestScheduleIdentity(t *testing.T) {
	zone := time.FixedZone("", 3600)
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	dates := func(last string) Schedule {
		return Except(Daily("08:00", ""), Dates("", "2026-01-01", "2026-01-02", "2026-01-03", last))
	}
	for _, c := range []struct {
		text string
		all  []Schedule // schedules with this identity
	}{
		{"every 60000000000 false 0.000000000", []Schedule{Every(time.Minute).Offset(0),
			Every(60 * time.Second).Offset(0)}},
		{"every 60000000000 false 1.000000000", []Schedule{Every(time.Minute).Offset(time.Second)}},
		{"every 60000000000 true 1777636800.000000000", []Schedule{Every(time.Minute).From(noon),
			Every(time.Minute).From(noon.In(zone))}},
		{"every 60000000000 false 12.582064972", []Schedule{ForName(Every(time.Minute), "orders")}},
		{"cron 0 2 * * * in UTC", []Schedule{Cron("0 2 * * *", ""), Cron(" 0  2 * * *", "UTC")}},
		{"cron 0 2 * * * in Europe/Berlin", []Schedule{Cron("0 2 * * *", "Europe/Berlin")}},
		{"daily 02:00 in UTC", []Schedule{Daily("02:00", "")}},
		{"at 1777636800.000000000 1777636801.000000000", []Schedule{At(noon, noon.Add(time.Second)),
			At(noon.Add(time.Second), noon.In(zone))}},
		{"at 1777636800.000000000", []Schedule{At(noon)}},
		{"times 3 from 1777636800.000000000\ndaily 08:00 in UTC", []Schedule{Times(3, noon, Daily("08:00", "")),
			Times(3, noon.In(zone), Daily("08:00", "UTC"))}},
		{"times 4 from 1777636800.000000000\ndaily 08:00 in UTC", []Schedule{Times(4, noon, Daily("08:00", ""))}},
		{"except daily 08:00 in UTC\nweekdays [6 0] in UTC\nbetween 1777636800.000000000 1777640400.000000000",
			[]Schedule{
				Except(Daily("08:00", ""), Weekdays("", time.Saturday, time.Sunday),
					Between(noon, noon.Add(time.Hour))),
				Except(Daily("08:00", ""), Weekdays("", time.Saturday, time.Sunday),
					Between(noon.In(zone), noon.Add(time.Hour))),
			}},
		{"except daily 08:00 in UTC\nwindow 01:00 02:00 in UTC",
			[]Schedule{Except(Daily("08:00", ""), DailyWindow("01:00", "02:00", ""))}},
		{"except daily 08:00 in UTC\ndates 2026-01-01 2026-01-02 2026-01-03 2026-01-04 in UTC",
			[]Schedule{dates("2026-01-04")}},
		{"except daily 08:00 in UTC\ndates 2026-01-01 2026-01-02 2026-01-03 2026-01-05 in UTC",
			[]Schedule{dates("2026-01-05")}},
		{"except daily 08:00 in UTC\nwhen a func says so", []Schedule{Except(Daily("08:00", ""),
			BlackoutFunc(func(time.Time) bool { return false }))}},
		{"*schedule.plainSchedule", []Schedule{&plainSchedule{new(time.Time)}, &plainSchedule{&noon}}},
	} {
		for _, s := range c.all {
			if got := Identity(s); got != c.text {
				t.Errorf("%v is %q, want %q", s, got, c.text)
			}
		}
	}
	Identity(brokenText{Every(time.Minute)}) // must not panic
}
