package timer

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"time"
)

// A Schedule says when a timer is due. It is the shape that robfig/cron and River share, so their calendars fit as
// they are. Their intervals (@every, PeriodicInterval) begin when they are asked and so differ from host to host: they are refused when a timer is
// registered whose ticks the fleet has in common (not without a store, with LocalOnly, or with MaxPerTick NoLimit).
//
// Next returns the first instant after t at which the timer is due, or the zero time if there is none. Every host must
// get the same answer, because the instant is the identity of a tick in the fleet. So t is always in UTC, also for schedules
// that take its zone for theirs, as those of robfig/cron do that name none. It must not block, because one goroutine
// schedules all timers; Register and Explain call it, too, so it must bear to be called by several at once. Instants are rounded up
// to the microsecond.
//
// A Schedule may also be a Checker, and a fmt.Stringer, which is how people get to see it, and how RunOnce tells it from another that the timer had
// before: let the text have all that decides about ticks, and nothing that differs from host to host.
type Schedule interface {
	Next(t time.Time) time.Time
}

// A Checker is a Schedule or a Blackout that knows whether it is well made. Its Check is called when the timer is registered, and
// what it returns comes back together with all other faults. What is made of parts returns the faults of its parts. A
// type of your own may have a Check, too; without one nothing is asked.
type Checker interface {
	Check() error
}

// Every is due once per period, on a grid that all hosts share: it begins at the Unix epoch and is shifted by a
// hash of the timer's name, by less than a minute, so that timers with the same period are not all due at the same
// instant. So Every(24*time.Hour) is not midnight; that takes an Offset, or a calendar. The shortest period is a millisecond.
func Every(period time.Duration) Interval { return Interval{period: period} }

const (
	shortestPeriod = time.Millisecond
	maxShift       = 100 * 366 * 24 * time.Hour
)

// An Interval is the schedule that Every makes.
type Interval struct {
	period   time.Duration
	shift    time.Duration // of the grid, from where it begins
	anchor   time.Time
	anchored bool // else the grid begins at the epoch and has no first tick
	placed   bool // by From or Offset: the name does not shift it
}

// From lets the grid begin at the anchor: the first tick is the anchor itself, and the others follow it, so
// Every(14*24*time.Hour).From(monday) is every second Monday. The name of the timer no longer shifts it. From(time.Now()) gives each host a
// grid of its own, so that each runs ticks of its own, which nobody notices: the anchor must be the same on all hosts.
func (iv Interval) From(anchor time.Time) Interval {
	iv.anchor, iv.anchored, iv.placed = anchor.Round(0), true, true
	return iv
}

// Offset moves the grid: Every(24*time.Hour).Offset(3*time.Hour) is 03:00 UTC. The name of the timer no longer shifts it.
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
	if iv.period < shortestPeriod {
		errs = append(errs, fmt.Errorf("Every(%v): the period must be at least %v", iv.period, shortestPeriod))
	}
	if y := iv.begin().Year(); y < 1800 || y > 2200 {
		errs = append(errs, fmt.Errorf("%v: the grid must begin between the years 1800 and 2200", iv))
	}
	if iv.shift > maxShift || iv.shift < -maxShift {
		errs = append(errs, fmt.Errorf("%v: an Offset must be at most %v", iv, maxShift))
	}
	return errors.Join(errs...)
}

// of returns the schedule of the timer with that name.
func (iv Interval) of(name string) Interval {
	if iv.placed {
		return iv
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	iv.shift = time.Duration(h.Sum64() % uint64(min(iv.period, time.Minute)))
	return iv
}

// ofTimer returns the schedule as the timer with that name has it: intervals are spread by name, also those inside of Except.
func ofTimer(s Schedule, name string) Schedule {
	switch s := s.(type) {
	case Interval:
		return s.of(name)
	case except:
		s.schedule = ofTimer(s.schedule, name)
		return s
	}
	return s
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

// into is how long ago the grid had its latest tick up to t. A Duration ends after 292 years, and t may be further away from where the
// grid begins.
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
	if rest >= period-nanos { // the sum may be more than a Duration takes
		return rest - (period - nanos)
	}
	return rest + nanos
}

// in is an instant in the zone of the anchor, and on no other clock than that on the wall.
func (iv Interval) in(t time.Time) time.Time {
	if !iv.anchored {
		return t.Round(0).UTC()
	}
	return t.Round(0).In(iv.anchor.Location())
}

// skip is what a generic schedule finds out tick by tick: given a tick that is due, the last one that is due by now and
// how many lie between them.
func (iv Interval) skip(tick, now time.Time) (last time.Time, missed uint64) {
	last = iv.in(now.Add(-iv.into(now)))
	n := last.Sub(tick.Add(-iv.into(tick))) / iv.period
	if n <= 0 {
		return tick, 0
	}
	return ceilMicro(last), uint64(n)
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

// nextTick asks a schedule, and turns a panic and a time that does not move on into an error. It asks in UTC: schedules of others take the zone of what
// they are asked with for theirs, which would differ from host to host.
func nextTick(s Schedule, after time.Time) (next time.Time, err error) {
	after = after.Round(0).UTC()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its Next panicked: %v", p)
			if broken, ok := p.(brokenPart); ok {
				err = broken.error
			}
		}
	}()
	next = s.Next(after)
	if next.IsZero() {
		return next, nil
	}
	if !next.After(after) {
		return time.Time{}, fmt.Errorf("its Next(%v) returned %v, which is not later", after.Format(time.RFC3339Nano), next.Format(time.RFC3339Nano))
	}
	if next.Year() > lastYear {
		return time.Time{}, nil
	}
	return ceilMicro(next.Round(0)), nil
}

// ownTicks reports whether a schedule of somebody else's has another tick next when it is asked between two of its ticks than when it was asked at the
// first: then its ticks depend on who asks when.
func ownTicks(s Schedule, from, next time.Time) (asked, again time.Time, differs bool) {
	if common(s) || next.Sub(from) < 4*time.Microsecond { // it was rounded
		return asked, again, false
	}
	asked = from.Add(next.Sub(from) / 2)
	again, err := nextTick(s, asked)
	return asked, again, err == nil && !again.Equal(next)
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

// lastYear bounds the instants of schedules: what lies beyond is taken for never, which is what those mean who return the
// largest time there is.
const lastYear = 9999

// ceilMicro rounds up, so that Next of the rounded instant is a later one.
func ceilMicro(t time.Time) time.Time {
	if r := t.Nanosecond() % 1000; r != 0 {
		t = t.Add(time.Duration(1000 - r))
	}
	return t
}

// maxMissed bounds how many ticks of a schedule other than Every are counted after a long sleep.
const maxMissed = 100_000

// advance moves from a tick that is due to the last one that is due by now, the number of ticks that were
// missed in between and before it, and the next one (zero: none).
func advance(s Schedule, tick, now time.Time) (last, next time.Time, missed uint64, err error) {
	last = tick
	if iv, ok := s.(Interval); ok {
		last, missed = iv.skip(tick, now)
	}
	for range maxMissed {
		next, err = nextTick(s, last)
		if err != nil || next.IsZero() || next.After(now) {
			return last, next, missed, err
		}
		last = next
		missed++
	}
	next, err = nextTick(s, now)
	return last, next, missed, err
}
