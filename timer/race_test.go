//go:build race

package timer

const raceDetector = true
