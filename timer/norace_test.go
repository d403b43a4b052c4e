//go:build !race

package timer

const raceDetector = false
