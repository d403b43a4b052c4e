package timer

import (
	"sync/atomic"
	"time"
)

// A wakeTime is the time at which the scheduling goroutine has to wake up. Live checks it.
type wakeTime struct {
	createdAt time.Time
	after     atomic.Int64 // time since createdAt; 0 if the goroutine is not running
}

// set records how long the goroutine may sleep.
func (w *wakeTime) set(in time.Duration) { w.after.Store(int64(time.Since(w.createdAt) + in)) }

// clear records that the goroutine is not running.
func (w *wakeTime) clear() { w.after.Store(0) }

// lateness returns how long ago the goroutine should have woken up, or 0 if it is not running.
func (w *wakeTime) lateness() time.Duration {
	planned := w.after.Load()
	if planned == 0 {
		return 0
	}
	return time.Since(w.createdAt) - time.Duration(planned)
}

// A clock determines when ticks are due.
type clock struct {
	skew atomic.Int64 // tests add this to the host's clock
}

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

// A bell wakes the scheduling goroutine, which then looks for due ticks.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// A clockLook holds the last reading of the clocks.
type clockLook struct {
	at    time.Time // monotonic clock
	shown time.Time // the wall clock at that time
}

// setBack records a reading of the clocks, and reports whether the wall clock was set back since
// the previous reading.
func (c *clockLook) setBack(at, shown time.Time) bool {
	before := *c
	*c = clockLook{at, shown.Round(0)}
	return !before.at.IsZero() && steppedBack(c.at.Sub(before.at), c.shown.Sub(before.shown))
}

// steppedBack reports whether the wall clock was set back, that is, whether it advanced by less
// than the elapsed time.
func steppedBack(passed, shown time.Duration) bool { return passed-shown > time.Second }
