package dlock

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// suspendExact: what kernelSuspended returns is sleep and nothing else.
const suspendExact = true

const clockMonotonic, clockBoottime = 1, 7

// sleepSeen is what kernelSuspended returned last.
var sleepSeen atomic.Int64

// kernelSuspended returns for how long the machine has been suspended since it booted. Go's
// monotonic clock (CLOCK_MONOTONIC) stops while a VM or a laptop sleeps, CLOCK_BOOTTIME does not;
// their difference grows by the time slept and by nothing else, least of all by a step of the wall
// clock.
func kernelSuspended() time.Duration {
	// A thread that loses the processor between two readings makes the difference larger, never
	// smaller: if it is the one that is known, it is right. Each reading is a system call, and
	// there are two such questions to every cycle of a lock.
	seen := time.Duration(sleepSeen.Load())
	if before := kernelClock(clockMonotonic); sleepBetween(before, kernelClock(clockBoottime)) == seen {
		return seen
	}
	var slept time.Duration
	for range 4 {
		before, boot, after := kernelClock(clockMonotonic), kernelClock(clockBoottime), kernelClock(clockMonotonic)
		slept = sleepBetween(after, boot)
		if after-before < time.Millisecond {
			break // else the processor was lost between the readings, and they say nothing
		}
	}
	sleepSeen.Store(int64(slept))
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
