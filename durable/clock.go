package durable

import (
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

// suspended returns how long the machine has slept, or 0 where that cannot be measured exactly:
// there, a step of the wall clock would look like sleep. It is a variable so that tests can
// simulate sleep.
var suspended = func() time.Duration {
	if !suspend.Exact {
		return 0
	}
	return suspend.Suspended()
}

// sleepCheck is how often a worker that has leases checks whether the machine was asleep.
const sleepCheck = time.Second

// An instant is a reading of a clock that never steps and does not stop while the machine sleeps.
type instant struct {
	awake time.Time     // Go's monotonic clock, which stops during sleep
	slept time.Duration // total sleep so far
}

// now reads the sleep time first, so that a pause of the process between the two readings counts as
// elapsed time.
func now() instant {
	slept := suspended()
	return instant{time.Now(), slept}
}

// since returns the time from another instant to this one.
func (i instant) since(earlier instant) time.Duration {
	return i.awake.Sub(earlier.awake) + max(0, i.slept-earlier.slept)
}

func (i instant) after(other instant) bool { return i.awake.After(other.awake) }
