package dlock

import (
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

// suspended and suspendIsExact are variables so that tests can simulate a sleeping machine.
var (
	suspended      = suspend.Suspended
	suspendIsExact = func() bool { return suspend.Exact }
)

// An instant is a time on a clock that never steps and keeps running while the machine sleeps.
type instant struct {
	mono  time.Time     // Go's monotonic clock, which stops during sleep
	slept time.Duration // how long the machine has slept so far
}

// now reads the sleep first. A pause of the process between the two readings then counts as elapsed
// time.
func now() instant {
	slept := suspended()
	return instant{mono: time.Now(), slept: slept}
}

// since returns the time from earlier to i, without and with the machine's sleep.
func (i instant) since(earlier instant) (awake, total time.Duration) {
	awake = i.mono.Sub(earlier.mono)
	return awake, awake + max(0, i.slept-earlier.slept)
}

// margin is subtracted from the TTL. It covers small differences in clock speed and the time it
// takes to tell a run that its lease is lost.
func margin(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

// trust returns how long a lease is trusted, counted from before its request was sent.
func trust(ttl time.Duration) time.Duration { return ttl - margin(ttl) }
