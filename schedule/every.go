package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"time"
)

// Every is due once per period, on a grid that all hosts share. The grid begins at the Unix epoch
// and is shifted by a hash of the timer's name (see ForName), by less than a minute, so that timers
// with the same period are not all due at the same instant. Every(24*time.Hour) is therefore not
// midnight: use Offset or a calendar for that. The shortest period is a millisecond.
func Every(period time.Duration) Interval { return Interval{period: period} }

const (
	minPeriod = time.Millisecond
	maxShift  = 100 * 366 * 24 * time.Hour
)

// An Interval is the schedule that Every makes.
type Interval struct {
	period   time.Duration
	shift    time.Duration // of the grid, from its beginning
	anchor   time.Time
	anchored bool // else the grid begins at the epoch and has no first tick
	placed   bool // by From or Offset: the name does not shift it
}

// From starts the grid at the anchor: the first tick is the anchor itself, so
// Every(14*24*time.Hour).From(monday) is every second Monday. The timer's name no longer shifts the
// grid. The anchor must be the same on all hosts. From(time.Now()) gives each host a grid of its
// own, so every host runs ticks of its own, and no check detects it.
func (iv Interval) From(anchor time.Time) Interval {
	iv.anchor, iv.anchored, iv.placed = anchor.Round(0), true, true
	return iv
}

// Offset moves the grid: Every(24*time.Hour).Offset(3*time.Hour) is 03:00 UTC. The timer's name no
// longer shifts the grid.
func (iv Interval) Offset(d time.Duration) Interval {
	switch sum := iv.shift + d; {
	case d > 0 && sum < iv.shift:
		iv.shift = math.MaxInt64 // which Check refuses
	case d < 0 && sum > iv.shift:
		iv.shift = math.MinInt64
	default:
		iv.shift = sum
	}
	iv.placed = true
	return iv
}

// Check implements Checker.
func (iv Interval) Check() error {
	var errs []error
	if iv.period < minPeriod {
		errs = append(errs, fmt.Errorf("Every(%v): the period must be at least %v", iv.period, minPeriod))
	}
	if y := iv.begin().Year(); y < 1800 || y > 2200 {
		errs = append(errs, fmt.Errorf("%v: the grid must begin between the years 1800 and 2200", iv))
	}
	if iv.shift > maxShift || iv.shift < -maxShift {
		errs = append(errs, fmt.Errorf("%v: an Offset must be at most %v", iv, maxShift))
	}
	return errors.Join(errs...)
}

// of returns the schedule for a timer with that name.
func (iv Interval) of(name string) Interval {
	if iv.placed {
		return iv
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	iv.shift = time.Duration(h.Sum64() % uint64(min(iv.period, time.Minute)))
	return iv
}

var epoch = time.Unix(0, 0).UTC()

func (iv Interval) begin() time.Time {
	if iv.anchored {
		return iv.anchor.Add(iv.shift)
	}
	return epoch.Add(iv.shift)
}

// Next implements Schedule.
func (iv Interval) Next(t time.Time) time.Time {
	if iv.period <= 0 {
		return time.Time{} // Check says why
	}
	if begin := iv.begin(); iv.anchored && t.Before(begin) {
		return begin
	}
	return iv.in(t.Add(iv.period - iv.into(t)))
}

// into is the time since the latest tick up to t. A Duration ends after 292 years, and t may be
// further than that from the beginning of the grid.
func (iv Interval) into(t time.Time) time.Duration {
	begin, period := iv.begin(), iv.period
	seconds, nanos := t.Unix()-begin.Unix(), time.Duration(t.Nanosecond()-begin.Nanosecond())%period
	hi, lo := bits.Mul64(uint64(max(seconds, -seconds)), uint64(time.Second))
	rest := time.Duration(bits.Rem64(hi, lo, uint64(period)))
	if seconds < 0 && rest > 0 {
		rest = period - rest
	}
	if nanos < 0 {
		nanos += period
	}
	if rest >= period-nanos { // the sum may overflow a Duration
		return rest - (period - nanos)
	}
	return rest + nanos
}

// in returns t in the zone of the anchor, without the monotonic clock reading.
func (iv Interval) in(t time.Time) time.Time {
	if !iv.anchored {
		return t.Round(0).UTC()
	}
	return t.Round(0).In(iv.anchor.Location())
}

// skip does with arithmetic what Advance does tick by tick: given a due tick, it returns the latest
// tick that is due by now and how many were passed over.
func (iv Interval) skip(tick, now time.Time) (last time.Time, missed uint64) {
	last = iv.in(now.Add(-iv.into(now)))
	n := last.Sub(tick.Add(-iv.into(tick))) / iv.period
	if n <= 0 {
		return tick, 0
	}
	return RoundUp(last), uint64(n)
}

func (iv Interval) String() string {
	s := fmt.Sprintf("every %v", iv.period)
	if iv.anchored {
		s += " from " + iv.anchor.Format(time.RFC3339Nano)
	}
	if iv.placed && iv.shift != 0 {
		s += fmt.Sprintf(", offset %v", iv.shift)
	}
	return s
}
