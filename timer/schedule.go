package timer

import (
	"fmt"
	"hash/fnv"
	"time"
)

// A Schedule says when a timer is due. It is the shape that robfig/cron and River share, so their schedules fit as
// they are.
//
// Next returns the first instant after t at which the timer is due, or the zero time if there is none. Every host must
// get the same answer, because the instant is the identity of a tick in the fleet. It is called from the one
// goroutine that schedules all timers, so it must not block. Instants are rounded up to the microsecond.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Every is due once per period, on a grid that all hosts share: it begins at the Unix epoch and is shifted by a
// hash of the timer's name, by less than a minute, so that timers with the same period are not all due at the same
// instant. So Every(24*time.Hour) is not midnight; that takes a calendar. The shortest period is a millisecond.
func Every(period time.Duration) Schedule { return interval{period: period} }

const shortestPeriod = time.Millisecond

type interval struct{ period, phase time.Duration }

// of returns the schedule of the timer with that name.
func (iv interval) of(name string) interval {
	h := fnv.New64a()
	h.Write([]byte(name))
	iv.phase = time.Duration(h.Sum64() % uint64(min(iv.period, time.Minute)))
	return iv
}

var epoch = time.Unix(0, 0).UTC()

// Next implements Schedule.
func (iv interval) Next(t time.Time) time.Time {
	return epoch.Add((iv.index(t)+1)*iv.period + iv.phase)
}

// index counts the periods of the grid that began up to t.
func (iv interval) index(t time.Time) time.Duration {
	since := t.Sub(epoch) - iv.phase
	n := since / iv.period
	if since%iv.period < 0 {
		n--
	}
	return n
}

// skip is what a generic schedule finds out tick by tick: given a tick that is due, the last one that is due by now and
// how many lie between them.
func (iv interval) skip(tick, now time.Time) (last time.Time, missed uint64) {
	n := iv.index(now) - iv.index(tick)
	if n <= 0 {
		return tick, 0
	}
	return ceilMicro(epoch.Add(iv.index(now)*iv.period + iv.phase)), uint64(n)
}

func (iv interval) String() string { return fmt.Sprintf("every %v", iv.period) }

// nextTick asks a schedule, and turns a panic and a time that does not move on into an error.
func nextTick(s Schedule, after time.Time) (next time.Time, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its Next panicked: %v", p)
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
	return ceilMicro(next), nil
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
	if iv, ok := s.(interval); ok {
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
