// Package testkit contains helpers for the tests of several packages: they mark long proofs, wait
// for events, and collect log output.
//
// A long proof is a test that takes many seconds of real time, or repeats many rounds where one
// would do, to find rare faults. make test skips it, and make proof WHAT=long runs only such tests.
// An environment variable controls this instead of a flag or a build tag: go test rejects a flag
// that one of several packages does not define, and code behind a tag is invisible to the compiler,
// go vet and editors.
package testkit

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// longEnv, set to 1, enables long proofs.
const longEnv = "TICKSLOT_LONG"

// Long skips the rest of a test unless long proofs are enabled. scripts/test-long.sh finds the
// tests by this call, so it must be in the test function itself and not in a helper.
func Long(t testing.TB) {
	t.Helper()
	standsInTest(t)
	if !wanted() {
		t.Skip("a long proof, see make proof WHAT=long")
	}
}

// Rounds returns how often to repeat something: few times, which is enough to find a plain fault,
// or many times if long proofs are enabled. The call must be in the same place as Long.
func Rounds(t testing.TB, few, many int) int {
	t.Helper()
	standsInTest(t)
	if wanted() {
		return many
	}
	return few
}

func wanted() bool { return os.Getenv(longEnv) == "1" }

// SkipShort skips a test that waits in real time or needs a server with a slow start, if -short
// asks for tests that can be repeated often.
func SkipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short")
	}
}

// SkipRace skips a test that counts allocations or bytes under the race detector, which allocates
// itself. make test runs it without the detector.
func SkipRace(t testing.TB) {
	t.Helper()
	if RaceDetector {
		t.Skip("measured without the race detector")
	}
}

// standsInTest fails the test unless the caller's caller is the test function itself or a function
// literal in it.
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
