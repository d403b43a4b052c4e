package suspend

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Exact is true where Suspended measures only suspension.
const Exact = true

const clockMonotonic, clockBoottime = 1, 7

// seenLast is the last result of Suspended.
var seenLast atomic.Int64

// Suspended returns how long the machine has been suspended since boot. Go's monotonic clock
// (CLOCK_MONOTONIC) stops during suspension, CLOCK_BOOTTIME does not. Their difference grows only
// during suspension, not with a step of the wall clock.
func Suspended() time.Duration {
	// If the thread is descheduled between two readings, the difference becomes larger, never
	// smaller. So a result equal to the last one is correct. That saves further readings, which are
	// system calls: this function runs twice per acquire and release.
	seen := time.Duration(seenLast.Load())
	if before := kernelClock(clockMonotonic); sleepBetween(before, kernelClock(clockBoottime)) == seen {
		return seen
	}
	var slept time.Duration
	for range 4 {
		before, boot, after := kernelClock(clockMonotonic), kernelClock(clockBoottime), kernelClock(clockMonotonic)
		slept = sleepBetween(after, boot)
		if after-before < time.Millisecond {
			break // otherwise the thread was descheduled, and the readings are useless
		}
	}
	seenLast.Store(int64(slept))
	return slept
}

func sleepBetween(monotonic, boot time.Duration) time.Duration {
	return max(0, boot-monotonic).Round(time.Millisecond)
}

func kernelClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
