package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"time"
)

// Every returns a schedule that is due once per period, on a grid that all hosts share. The grid
// starts at the Unix epoch. It is shifted by a hash of the timer's name (see ForName), by less than
// a minute, so that timers with the same period are not all due at the same instant.
// Every(24*time.Hour) is therefore not due at midnight; use Offset or a calendar for that. The
// shortest period is a millisecond.
func Every(period time.Duration) Interval { return Interval{period: period} }

const (
	minPeriod = time.Millisecond
	maxShift  = 100 * 366 * 24 * time.Hour
)

// An Interval is the schedule that Every returns.
type Interval struct {
	period   time.Duration
	shift    time.Duration // shift of the grid from its start
	anchor   time.Time
	anchored bool // set by From; otherwise the grid starts at the epoch and has no first tick
	placed   bool // set by From and Offset: the name does not shift the grid
}

// From starts the grid at the anchor. The first tick is the anchor itself, so
// Every(14*24*time.Hour).From(monday) is due every second Monday. The timer's name no longer shifts
// the grid. The anchor must be the same on all hosts. With From(time.Now()) each host would have
// its own grid and run its own ticks, and no check detects that.
func (i Interval) From(anchor time.Time) Interval {
	i.anchor, i.anchored, i.placed = anchor.Round(0), true, true
	return i
}

// Offset shifts the grid: Every(24*time.Hour).Offset(3*time.Hour) is due at 03:00 UTC. The timer's
// name no longer shifts the grid.
func (i Interval) Offset(d time.Duration) Interval {
	switch sum := i.shift + d; {
	case d > 0 && sum < i.shift:
		i.shift = math.MaxInt64 // Check refuses this value
	case d < 0 && sum > i.shift:
		i.shift = math.MinInt64
	default:
		i.shift = sum
	}
	i.placed = true
	return i
}

// Check implements Checker.
func (i Interval) Check() error {
	var errs []error
	if i.period < minPeriod {
		errs = append(errs, fmt.Errorf("Every(%v): the period must be at least %v", i.period, minPeriod))
	}
	if y := i.begin().Year(); y < 1800 || y > 2200 {
		errs = append(errs, fmt.Errorf("%v: the grid must begin between the years 1800 and 2200", i))
	}
	if i.shift > maxShift || i.shift < -maxShift {
		errs = append(errs, fmt.Errorf("%v: an Offset must be at most %v", i, maxShift))
	}
	return errors.Join(errs...)
}

// of returns the interval, shifted for a timer with that name.
func (i Interval) of(name string) Interval {
	if i.placed {
		return i
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	i.shift = time.Duration(h.Sum64() % uint64(min(i.period, time.Minute)))
	return i
}

var epoch = time.Unix(0, 0).UTC()

func (i Interval) begin() time.Time {
	if i.anchored {
		return i.anchor.Add(i.shift)
	}
	return epoch.Add(i.shift)
}

// Next implements Schedule.
func (i Interval) Next(t time.Time) time.Time {
	if i.period <= 0 {
		return time.Time{} // Check reports why
	}
	if begin := i.begin(); i.anchored && t.Before(begin) {
		return begin
	}
	return i.in(t.Add(i.period - i.into(t)))
}

// into returns the time from the latest tick up to t until t. A Duration holds at most 292 years,
// and t may be further than that from the start of the grid.
func (i Interval) into(t time.Time) time.Duration {
	begin, period := i.begin(), i.period
	seconds, nanos := t.Unix()-begin.Unix(), time.Duration(t.Nanosecond()-begin.Nanosecond())%period
	hi, lo := bits.Mul64(uint64(max(seconds, -seconds)), uint64(time.Second))
	rest := time.Duration(bits.Rem64(hi, lo, uint64(period)))
	if seconds < 0 && rest > 0 {
		rest = period - rest
	}
	if nanos < 0 {
		nanos += period
	}
	if rest >= period-nanos { // the sum could overflow a Duration
		return rest - (period - nanos)
	}
	return rest + nanos
}

// in returns t in the zone of the anchor, without the monotonic clock reading.
func (i Interval) in(t time.Time) time.Time {
	if !i.anchored {
		return t.Round(0).UTC()
	}
	return t.Round(0).In(i.anchor.Location())
}

// skip computes directly what Advance otherwise computes tick by tick. Given a due tick, it returns
// the latest tick that is due by now and the number of ticks that were skipped.
func (i Interval) skip(tick, now time.Time) (last time.Time, missed uint64) {
	last = i.in(now.Add(-i.into(now)))
	n := last.Sub(tick.Add(-i.into(tick))) / i.period
	if n <= 0 {
		return tick, 0
	}
	return RoundUp(last), uint64(n)
}

func (i Interval) String() string {
	s := fmt.Sprintf("every %v", i.period)
	if i.anchored {
		s += " from " + i.anchor.Format(time.RFC3339Nano)
	}
	if i.placed && i.shift != 0 {
		s += fmt.Sprintf(", offset %v", i.shift)
	}
	return s
}
