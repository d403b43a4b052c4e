// Package testkit is shared by the tests of several packages: which of them are long proofs, how to
// wait for an event, and what was logged meanwhile.
//
// A long proof takes many seconds of real time, or repeats what one round shows as well, to find
// rare faults. make test leaves it out, make proof WHAT=long runs it and nothing else. One
// environment variable decides, and no flag or build tag: go test refuses a flag that one of
// several packages lacks, and code behind a tag is seen by no compiler, go vet or editor.
package testkit

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// longEnv, set to 1, makes long proofs run, too.
const longEnv = "TICKSLOT_LONG"

// Long skips the rest of a test unless long proofs are wanted. scripts/test-long.sh finds the tests
// by this call, so it has to be in the test's own function and not in a helper.
func Long(t testing.TB) {
	t.Helper()
	standsInTest(t)
	if !wanted() {
		t.Skip("a long proof, see make proof WHAT=long")
	}
}

// Rounds returns how often to repeat something: often enough to find a plain fault, or more if long
// proofs are wanted. It has to be called in the same place as Long.
func Rounds(t testing.TB, few, many int) int {
	t.Helper()
	standsInTest(t)
	if wanted() {
		return many
	}
	return few
}

func wanted() bool { return os.Getenv(longEnv) == "1" }

// SkipShort skips a test that waits in real time, or needs a server that takes long to start, if
// -short asks for tests that can be repeated often.
func SkipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short")
	}
}

// SkipRace skips a test that counts allocations or bytes under the race detector, which makes some
// of its own. make test runs it, without the detector.
func SkipRace(t testing.TB) {
	t.Helper()
	if RaceDetector {
		t.Skip("measured without the race detector")
	}
}

// standsInTest fails the test unless the caller of our caller is its own function, or one written
// inside of it.
func standsInTest(t testing.TB) {
	t.Helper()
	pc := make([]uintptr, 1)
	runtime.Callers(3, pc)
	frame, _ := runtime.CallersFrames(pc).Next()
	_, function, _ := strings.Cut(frame.Function[strings.LastIndex(frame.Function, "/")+1:], ".")
	test, _, _ := strings.Cut(t.Name(), "/")
	if function != test && !strings.HasPrefix(function, test+".") {
		t.Fatalf("testkit: called by %s: scripts/test-long.sh would not find %s", function, test)
	}
}
