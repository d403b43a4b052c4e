package dlock

import (
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

// suspended and suspendIsExact are variables so that tests can put the machine to sleep.
var (
	suspended      = suspend.Suspended
	suspendIsExact = func() bool { return suspend.Exact }
)

// An instant is a reading of a clock that never steps and keeps running while the machine sleeps.
type instant struct {
	mono  time.Time     // Go's monotonic reading, which stops during sleep
	slept time.Duration // how long the machine has slept so far
}

// now reads the sleep first, so that a pause of the process between the two readings counts.
func now() instant {
	slept := suspended()
	return instant{mono: time.Now(), slept: slept}
}

// since returns the time from earlier to t, without and with the sleep of the machine.
func (i instant) since(earlier instant) (awake, total time.Duration) {
	awake = i.mono.Sub(earlier.mono)
	return awake, awake + max(0, i.slept-earlier.slept)
}

// margin is taken off the TTL, to allow for clocks that run at slightly different speeds and for
// the time it takes to tell the run that it has lost its lease.
func margin(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

// trust returns how long a lease is trusted, from the moment before its request was sent.
func trust(ttl time.Duration) time.Duration { return ttl - margin(ttl) }
