//go:build !linux

package suspend

import "time"

// Exact is false here, because a step of the wall clock looks like suspension. A lease that seems
// to have been suspended for too long is in doubt, but not over.
const Exact = false

var processStart = time.Now()

// Suspended estimates how long the machine has been suspended since the process started: by how far
// the wall clock is ahead of the monotonic one.
func Suspended() time.Duration {
	now := time.Now()
	return max(0, now.Round(0).Sub(processStart.Round(0))-now.Sub(processStart)).Round(time.Millisecond)
}
