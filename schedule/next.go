package schedule

import (
	"fmt"
	"time"
)

const (
	// lastYear bounds the instants of schedules: what lies beyond is taken for never, which is what
	// those mean who return the largest time there is.
	lastYear = 9999
	// maxMissed bounds how many ticks of a schedule other than Every are counted one by one.
	maxMissed = 100_000
)

// Next returns the first tick after an instant, or the zero time if there is none. It asks the
// schedule in UTC: schedules of others take the zone of what they are asked with for theirs, which
// would differ from host to host. A panic, and a time that is not later, are errors.
func Next(s Schedule, after time.Time) (next time.Time, err error) {
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
	return RoundUp(next.Round(0)), nil
}

// RoundUp rounds an instant up to the microsecond, as Next does with every tick: up, so that the
// next tick after the rounded instant is a later one.
func RoundUp(t time.Time) time.Time {
	if r := t.Nanosecond() % 1000; r != 0 {
		t = t.Add(time.Duration(1000 - r))
	}
	return t
}

// Advance goes from a tick that is due to the last one that is due by now. It returns that one, the
// tick after it (the zero time: none), and how many ticks lie before it, the first one included. Of
// a schedule other than Every it counts 100,000 ticks at most, and then goes on from now.
func Advance(s Schedule, tick, now time.Time) (last, next time.Time, missed uint64, err error) {
	last = tick
	if iv, ok := s.(Interval); ok {
		last, missed = iv.skip(tick, now)
	}
	for range maxMissed {
		next, err = Next(s, last)
		if err != nil || next.IsZero() || next.After(now) {
			return last, next, missed, err
		}
		last = next
		missed++
	}
	next, err = Next(s, now)
	return last, next, missed, err
}

// Latest returns the latest tick up to now that is no older than window, or the zero time if there
// is none or the schedule fails.
func Latest(s Schedule, now time.Time, window time.Duration) (last time.Time) {
	for back := min(time.Second, window); ; {
		next, err := Next(s, now.Add(-back).Add(-time.Microsecond))
		for n := 0; err == nil && !next.IsZero() && !next.After(now) && n < maxMissed; n++ {
			last = next
			next, err = Next(s, last)
		}
		if !last.IsZero() || back == window || err != nil {
			return last
		}
		if back < window/4 {
			back *= 4
		} else {
			back = window
		}
	}
}

// ForName returns the schedule as what has that name is to have it: an Every without From and
// Offset is shifted by the name, also inside of Except. Others are returned as they are.
func ForName(s Schedule, name string) Schedule {
	switch s := s.(type) {
	case Interval:
		return s.of(name)
	case except:
		s.schedule = ForName(s.schedule, name)
		return s
	}
	return s
}
