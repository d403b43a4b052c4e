package testkit

import (
	"cmp"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestLongProofsAreLeftOut(t *testing.T) {
	for _, env := range []string{"", "1"} {
		t.Setenv(longEnv, env)
		ran := false
		t.Run("long", func(t *testing.T) {
			Long(t)
			ran = true
		})
		rounds := 0
		t.Run("rounds", func(t *testing.T) { rounds = Rounds(t, 3, 100) })
		if want := env == "1"; ran != want || rounds == 100 != want || rounds == 3 == want {
			t.Errorf("%s=%q: it ran: %t, with %d rounds", longEnv, env, ran, rounds)
		}
	}
}

// recorder is a test that continues after a failure.
type recorder struct {
	testing.TB
	name   string // "" for the name of the test
	failed bool
}

func (r *recorder) Name() string { return cmp.Or(r.name, r.TB.Name()) }

func (r *recorder) Fatal(...any)          { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }
func (r *recorder) Skip(...any)           {}

func helper(t testing.TB) { Long(t) }

func TestLongInAHelperFails(t *testing.T) {
	in, out := &recorder{TB: t}, &recorder{TB: t}
	Long(in)
	helper(out)
	if in.failed || !out.failed {
		t.Errorf("in the test it failed: %t, in a helper: %t", in.failed, out.failed)
	}
}

// make proof WHAT=long runs every long proof, including those in this file.
func TestLongProofsAreFound(t *testing.T) {
	list := exec.Command("sh", "scripts/test-long.sh", "list")
	list.Dir, list.Stderr = "../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"TestLongProofsAreLeftOut", "TestLongInAHelperFails"} {
		if !regexp.MustCompile(`(?m)^\./internal/testkit ` + name + `$`).Match(out) {
			t.Errorf("%s is not among\n%s", name, out)
		}
	}
	if strings.Contains(string(out), "TestEventually") {
		t.Errorf("TestEventually has no long proof:\n%s", out)
	}
}
