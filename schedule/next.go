package schedule

import (
	"fmt"
	"time"
)

// lastYear bounds the ticks of schedules. A later tick counts as never, because some schedules
// return the largest possible time to mean never.
const lastYear = 9999

// MaxMissed is the largest number of ticks that Advance counts, except for an Every. If Advance has
// counted that many, more may have been missed, and the tick that it returns may not be the latest.
const MaxMissed = 100_000

// Next returns the first tick after an instant, or the zero time if there is none. It passes the
// instant in UTC: some schedules use the zone of their argument, and their ticks would otherwise
// differ between hosts. Next returns an error if the schedule panics or returns a time that is not
// later than after.
func Next(s Schedule, after time.Time) (next time.Time, err error) {
	after = after.Round(0).UTC()
	defer recovered("its Next", &err)
	next = s.Next(after)
	if next.IsZero() {
		return next, nil
	}
	if !next.After(after) {
		return time.Time{}, fmt.Errorf("its Next(%v) returned %v, which is not later", after.Format(time.RFC3339Nano),
			next.Format(time.RFC3339Nano))
	}
	if next.Year() > lastYear {
		return time.Time{}, nil
	}
	return RoundUp(next.Round(0)), nil
}

// recovered turns a panic in the called code into an error. It must be deferred.
func recovered(called string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s panicked: %v", called, p)
		if broken, ok := p.(brokenPart); ok {
			*err = broken.error
		}
	}
}

// MaxNextTicks is the largest n for NextTicks.
const MaxNextTicks = 10_000

// NextTicks returns the first n ticks after an instant, or fewer if no more exist. Every program
// gets the same ticks. The ticks of an Every depend on the timer's name. To get the ticks of a
// timer, call NextTicks(ForName(s, name), now, 5). A nil schedule has no ticks. After has none
// either, because its ticks depend on when runs end. n must be 0 to MaxNextTicks. As with Next, a
// schedule that fails is an error.
func NextTicks(s Schedule, after time.Time, n int) ([]time.Time, error) {
	if n < 0 || n > MaxNextTicks {
		return nil, fmt.Errorf("%d ticks: use 0 to %d", n, MaxNextTicks)
	}
	if _, fixed := s.(FixedDelay); fixed || s == nil {
		return nil, nil
	}
	ticks := make([]time.Time, 0, min(n, 100))
	for range n {
		next, err := Next(s, after)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Describe(s), err)
		}
		if next.IsZero() {
			break
		}
		ticks = append(ticks, next)
		after = next
	}
	return ticks, nil
}

// RoundUp rounds an instant up to the microsecond, as Next does with every tick. After rounding up,
// the next tick is still later than the rounded instant.
func RoundUp(t time.Time) time.Time {
	if r := t.Nanosecond() % 1000; r != 0 {
		t = t.Add(time.Duration(1000 - r))
	}
	return t
}

// Advance moves from a due tick to the latest tick that is due by now. It returns the latest tick,
// the tick after it (the zero time if there is none), and the number of ticks that it skipped,
// including the first one. For a schedule other than Every, it counts at most MaxMissed ticks and
// then continues from now.
func Advance(s Schedule, tick, now time.Time) (last, next time.Time, missed uint64, err error) {
	last = tick
	if iv, ok := s.(Interval); ok {
		last, missed = iv.skip(tick, now)
	}
	for range MaxMissed {
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
// is none. If the schedule fails, Latest returns the latest tick that it had found before.
func Latest(s Schedule, now time.Time, window time.Duration) (last time.Time) {
	for back := min(time.Second, window); ; {
		next, err := Next(s, now.Add(-back).Add(-time.Microsecond))
		for n := 0; err == nil && !next.IsZero() && !next.After(now) && n < MaxMissed; n++ {
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

// ForName returns the schedule for a timer with that name. It shifts an Every without From and
// Offset by a hash of the name, also inside Except and Times. It returns other schedules unchanged.
func ForName(s Schedule, name string) Schedule {
	switch s := s.(type) {
	case Interval:
		return s.of(name)
	case except:
		s.schedule = ForName(s.schedule, name)
		return s
	case counted:
		return s.of(ForName(s.schedule, name))
	}
	return s
}
