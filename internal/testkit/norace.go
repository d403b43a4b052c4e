//go:build !race

package testkit

// RaceDetector reports whether the race detector is on. It makes code slower, and allocates.
const RaceDetector = false
