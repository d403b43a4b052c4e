package schedule

import (
	"fmt"
	"time"
)

// After returns a schedule whose next run is due a fixed delay after the previous run ends,
// whatever the outcome of that run, like Spring's fixedDelay. Hosts cannot know in advance when a
// run will end, so a timer.Scheduler asks the store when it may start the next run. See "A fixed
// delay" in package timer. The delay must be 1 ms to 30 days.
func After(delay time.Duration) FixedDelay { return FixedDelay{delay} }

const (
	minDelay = time.Millisecond
	maxDelay = 30 * 24 * time.Hour
)

// A FixedDelay is the schedule that After returns. Its ticks are not known in advance: Next returns
// t plus the delay, and NextTicks returns no ticks.
type FixedDelay struct{ delay time.Duration }

// Delay returns the time from the end of a run until the next run is due.
func (f FixedDelay) Delay() time.Duration { return f.delay }

// Next implements Schedule. It returns when the next run is due if a run ended at t.
func (f FixedDelay) Next(t time.Time) time.Time {
	if f.delay <= 0 {
		return time.Time{} // Check reports the invalid delay
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
