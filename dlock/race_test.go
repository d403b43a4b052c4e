//go:build race

package dlock_test

const raceDetector = true
