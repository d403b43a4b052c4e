//go:build !linux

package dlock

import "time"

// suspendExact is false here: a step of the wall clock looks like sleep, so a lease that seems to
// have slept through its window is doubted (Valid is false, a heartbeat goes out at once), not
// lost.
const suspendExact = false

var processStart = time.Now()

// kernelSuspended estimates for how long the machine has been suspended since the process started:
// by how much the wall clock has run ahead of the monotonic one.
func kernelSuspended() time.Duration {
	now := time.Now()
	return max(0, now.Round(0).Sub(processStart.Round(0))-now.Sub(processStart)).Round(time.Millisecond)
}
