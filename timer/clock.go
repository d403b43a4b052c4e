package timer

import (
	"sync/atomic"
	"time"
)

// A wakeTime is the time at which the scheduling goroutine has to wake up, for Live.
type wakeTime struct {
	createdAt time.Time
	after     atomic.Int64 // since createdAt; 0: the goroutine does not run
}

// set records after how long the goroutine has to wake up.
func (w *wakeTime) set(in time.Duration) { w.after.Store(int64(time.Since(w.createdAt) + in)) }

// clear records that the goroutine is not running.
func (w *wakeTime) clear() { w.after.Store(0) }

// lateness returns how late the goroutine is to wake up; 0 if it is not running.
func (w *wakeTime) lateness() time.Duration {
	planned := w.after.Load()
	if planned == 0 {
		return 0
	}
	return time.Since(w.createdAt) - time.Duration(planned)
}

// A clock is the clock by which ticks come due.
type clock struct {
	skew atomic.Int64 // added to this host's clock by tests
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

// A clockLook is what the clocks showed when they were last read.
type clockLook struct {
	at    time.Time // monotonic
	shown time.Time // the wall clock at that time
}

// setBack records what the clocks show, and reports whether the wall clock was set back since the
// last call.
func (c *clockLook) setBack(at, shown time.Time) bool {
	before := *c
	*c = clockLook{at, shown.Round(0)}
	return !before.at.IsZero() && steppedBack(c.at.Sub(before.at), c.shown.Sub(before.shown))
}

// steppedBack reports whether the wall clock was set back: it advanced by less than the time that
// has passed.
func steppedBack(passed, shown time.Duration) bool { return passed-shown > time.Second }
