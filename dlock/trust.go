package dlock

import "time"

// suspended and suspendIsExact are variables so that a test can put the machine to sleep.
var (
	suspended      = kernelSuspended
	suspendIsExact = suspendExact
)

// An instant is a moment on a clock that never steps and does not stop while the machine sleeps.
type instant struct {
	mono  time.Time     // carries Go's monotonic reading, which stands still in sleep
	slept time.Duration // the machine's sleep so far
}

// now reads the clock that decides last: if the process is stopped between the two readings, it
// shows.
func now() instant {
	slept := suspended()
	return instant{mono: time.Now(), slept: slept}
}

// since returns the time from earlier to t: awake, and awake and asleep together.
func (t instant) since(earlier instant) (awake, total time.Duration) {
	awake = t.mono.Sub(earlier.mono)
	return awake, awake + max(0, t.slept-earlier.slept)
}

// margin is what is taken off the TTL: for clocks that run at slightly different speeds, and for
// the time that it takes to tell the run.
func margin(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

// trust is how long after the moment before the request was sent a lease is trusted.
func trust(ttl time.Duration) time.Duration { return ttl - margin(ttl) }
