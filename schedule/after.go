package schedule

import (
	"fmt"
	"time"
)

// After is due a fixed delay after a run has ended, whatever its outcome, like Spring's fixedDelay.
// Hosts cannot know in advance when a run will end, so a timer.Scheduler asks the store when it may
// start: see "A fixed delay" in package timer. The delay is 1 ms to 30 days.
func After(delay time.Duration) FixedDelay { return FixedDelay{delay} }

const (
	minDelay = time.Millisecond
	maxDelay = 30 * 24 * time.Hour
)

// A FixedDelay is the schedule that After returns. It has no instants of its own: Next returns t
// plus the delay, and NextTicks returns none.
type FixedDelay struct{ delay time.Duration }

// Delay returns how long after the end of a run the next run is due.
func (f FixedDelay) Delay() time.Duration { return f.delay }

// Next implements Schedule: it returns when the next run is due after one that ended at t.
func (f FixedDelay) Next(t time.Time) time.Time {
	if f.delay <= 0 {
		return time.Time{} // Check says why
	}
	return t.Add(f.delay)
}

// Check implements Checker.
func (f FixedDelay) Check() error {
	if f.delay < minDelay || f.delay > maxDelay {
		return fmt.Errorf("After(%v): the delay must be %v to %v", f.delay, minDelay, maxDelay)
	}
	return nil
}

func (f FixedDelay) String() string { return fmt.Sprintf("%v after the end of a run", f.delay) }
