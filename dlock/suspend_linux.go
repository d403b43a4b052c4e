package dlock

import (
	"syscall"
	"time"
	"unsafe"
)

// suspendExact: what kernelSuspended returns is sleep and nothing else.
const suspendExact = true

// kernelSuspended returns for how long the machine has been suspended since it booted. Go's monotonic
// clock (CLOCK_MONOTONIC) stops while a VM or a laptop sleeps, CLOCK_BOOTTIME does not; their
// difference grows by the time slept and by nothing else, least of all by a step of the wall clock.
func kernelSuspended() time.Duration {
	const clockMonotonic, clockBoottime = 1, 7
	var offset time.Duration
	for range 4 {
		before, boot, after := kernelClock(clockMonotonic), kernelClock(clockBoottime), kernelClock(clockMonotonic)
		// If the thread lost the processor between the readings they say nothing: read again.
		offset = boot - after
		if after-before < time.Millisecond {
			break
		}
	}
	return max(0, offset).Round(time.Millisecond)
}

func kernelClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
