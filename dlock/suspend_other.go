//go:build !linux

package dlock

import "time"

// suspendExact is false here: a step of the wall clock looks like sleep. A lease that seems to have
// slept through its trust window is in doubt (Valid is false, a heartbeat is sent at once), not
// lost.
const suspendExact = false

var processStart = time.Now()

// kernelSuspended estimates how long the machine has been suspended since the process started: by
// how much the wall clock is ahead of the monotonic one.
func kernelSuspended() time.Duration {
	now := time.Now()
	return max(0, now.Round(0).Sub(processStart.Round(0))-now.Sub(processStart)).Round(time.Millisecond)
}
