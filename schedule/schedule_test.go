package schedule

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// The grid of Every depends only on the period and the name. Hosts agree on it, whenever they
// start.
func TestEveryIsAGridCommonToTheFleet(t *testing.T) {
	for _, period := range []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 90 * time.Second,
		time.Hour, 36 * time.Hour} {
		s := Interval{period: period}.of("orders")
		if s.shift < 0 || s.shift >= min(period, time.Minute) {
			t.Errorf("%v: shifted by %v", period, s.shift)
		}
		start := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
		tick := s.Next(start)
		for range 1000 {
			next := s.Next(tick)
			if next.Sub(tick) != period {
				t.Fatalf("%v: %v after %v", period, next, tick)
			}
			within := tick.Add(rand.N(period)) // any instant within the period gives the same next tick
			if got := s.Next(within); !got.Equal(next) {
				t.Fatalf("%v: Next(%v) = %v, want %v", period, within, got, next)
			}
			tick = next
		}
		before := time.Date(1950, 1, 1, 0, 0, 0, 1, time.UTC)
		if d := s.Next(before).Sub(before); d <= 0 || d > period {
			t.Errorf("%v: before the epoch Next is %v later", period, d)
		}
	}
}

// A hundred timers with the same period are not all due at the same instant.
func TestEveryIsSpreadByName(t *testing.T) {
	seconds := map[int]int{}
	for i := range 600 {
		s := Interval{period: time.Hour}.of("timer-" + strconv.Itoa(i))
		seconds[int(s.shift/time.Second)]++
	}
	if len(seconds) < 55 {
		t.Errorf("600 timers fall on %d seconds of the minute", len(seconds))
	}
}

// After a long sleep, Advance returns the latest due tick and counts the earlier ones, by
// arithmetic or one by one.
//
// Fails when Interval.skip does not count the ticks in between.
func TestAdvanceCountsMissedTicks(t *testing.T) {
	grid := Interval{period: time.Second}.of("x")
	for name, s := range map[string]Schedule{"every": grid, "generic": generic{grid}} {
		tick := RoundUp(grid.Next(time.Unix(1_700_000_000, 0)))
		for _, late := range []time.Duration{0, time.Millisecond, 999 * time.Millisecond, time.Second,
			3500 * time.Millisecond, 1000 * time.Second} {
			last, next, missed, err := Advance(s, tick, tick.Add(late))
			want := uint64(late / time.Second)
			if err != nil || missed != want || !last.Equal(tick.Add(time.Duration(want)*time.Second)) ||
				!next.Equal(last.Add(time.Second)) {
				t.Errorf("%s, %v late: last %v, next %v, missed %d, %v; want missed %d", name, late, last.Sub(tick),
					next.Sub(tick), missed, err, want)
			}
		}
	}
}

type generic struct{ s Schedule }

func (g generic) Next(t time.Time) time.Time { return g.s.Next(t) }

// If a schedule breaks at run time, Advance returns an error.
func TestAdvanceReportsABrokenSchedule(t *testing.T) {
	now := time.Now()
	if _, _, _, err := Advance(broken{}, now, now); err == nil {
		t.Error("a schedule that does not advance was accepted")
	}
}

type broken struct{}

func (broken) Next(t time.Time) time.Time { return t }

// RoundUp rounds up to the microsecond, so that the next tick is later than the rounded instant.
func TestRoundUp(t *testing.T) {
	for _, nanos := range []int64{0, 1, 999, 1000, 1001, 999_999_999} {
		got := RoundUp(time.Unix(5, nanos))
		if got.Nanosecond()%1000 != 0 || got.Before(time.Unix(5, nanos)) || got.Sub(time.Unix(5, nanos)) > 999 {
			t.Errorf("RoundUp(%d) = %d", nanos, got.Nanosecond())
		}
	}
}

// If too many ticks were missed to count them one by one, the next tick is still later than now.
//
// Fails when Advance continues from the last tick that it counted.
func TestAdvanceIsBounded(t *testing.T) {
	grid := Interval{period: time.Millisecond}.of("x")
	tick := RoundUp(grid.Next(time.Unix(1_700_000_000, 0)))
	now := tick.Add(time.Hour)
	if _, next, missed, err := Advance(generic{grid}, tick, now); err != nil || missed != MaxMissed ||
		!next.After(now) {
		t.Errorf("missed %d, next %v after now, %v", missed, next.Sub(now), err)
	}
}
