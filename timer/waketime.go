package timer

import (
	"sync/atomic"
	"time"
)

// A wakeTime is when the scheduling goroutine is to wake up, for Live.
type wakeTime struct {
	createdAt time.Time
	after     atomic.Int64 // since createdAt; 0: the goroutine does not run
}

// set records that the goroutine is to wake up in so long.
func (w *wakeTime) set(in time.Duration) { w.after.Store(int64(time.Since(w.createdAt) + in)) }

// clear records that the goroutine does not run.
func (w *wakeTime) clear() { w.after.Store(0) }

// lateness returns how late the goroutine is to wake up; 0 if it does not run.
func (w *wakeTime) lateness() time.Duration {
	planned := w.after.Load()
	if planned == 0 {
		return 0
	}
	return time.Since(w.createdAt) - time.Duration(planned)
}
