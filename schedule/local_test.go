package schedule

import (
	"strings"
	"testing"
	"time"
)

// A schedule in the zone Local follows this host's clock. If hosts must agree, every kind of
// schedule and blackout in that zone is refused, also inside another schedule.
//
// Fails when loadZone refuses Local or reads it as UTC, or when checkZones leaves out a kind or a
// part of an Except.
func TestLocalZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	was := time.Local
	time.Local = berlin
	defer func() { time.Local = was }()
	from := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, s := range []Schedule{Cron("0 2 * * *", "Local"), Daily("02:00", "Local")} {
		if faults := Check(s); len(faults) > 0 {
			t.Errorf("%v: %v", s, faults)
		}
		if next := s.Next(from); !next.Equal(time.Date(2026, 7, 2, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%v: %v, want 02:00 in Berlin", s, next)
		}
	}
	night := DailyWindow("22:00", "06:00", "Local")
	if until := night.Until(from.Add(11 * time.Hour)); !until.Equal(time.Date(2026, 7, 2, 4, 0, 0, 0, time.UTC)) {
		t.Errorf("the night lasts until %v, want 06:00 in Berlin", until)
	}
	utc := Daily("02:00", "")
	for _, s := range []Schedule{Cron("0 2 * * *", "Local"), Daily("02:00", "Local"), Except(Daily("02:00", "Local"),
		Weekdays("", time.Sunday)), Except(utc, night), Except(Except(utc, night), Weekdays("", time.Sunday))} {
		if err := CheckShared(s); err == nil || !strings.Contains(err.Error(), "hosts may differ in their local time") {
			t.Errorf("%v: %v, want an error: hosts do not agree on it", s, err)
		}
	}
	for _, b := range []Blackout{night, Weekdays("Local", time.Sunday), Dates("Local", "2026-12-25")} {
		if err := CheckSharedBlackout(b); err == nil || !strings.Contains(err.Error(), "name a zone") {
			t.Errorf("%v: %v, want an error: hosts do not agree on it", b, err)
		}
	}
	for _, b := range []Blackout{DailyWindow("22:00", "06:00", "Europe/Berlin"), Weekdays("", time.Sunday), nil,
		BlackoutFunc(func(time.Time) bool { return false })} {
		if err := CheckSharedBlackout(b); err != nil {
			t.Errorf("%v: %v", b, err)
		}
	}
}
