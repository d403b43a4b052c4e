package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// result returns the result of a group with one claim.
func result(t *testing.T, group string, value float64) Result {
	t.Helper()
	r, err := Group{Name: group, Unit: "u", Plot: "runs", Cases: []Case{scripted("ours", value)},
		Claims: []Claim{{Name: "claim of " + group, Bound: 1, Target: 1}}}.run(1, true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Fails when measuring one part loses the figures of others or keeps its own old ones, or when a
// kept part changes.
func TestPartsAreWrittenByThemselves(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "RESULTS.md")
	began := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	step := func(all ...Result) string {
		t.Helper()
		if err := write(folder, all, occasion{began: began, machine: []string{"a machine"}}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mutex, runs := result(t, "mutex", 11), result(t, durableName+"runs", 22)
	messages := result(t, outboxName+"messages", 44)
	all := step(mutex, runs, messages)
	if again := step(mutex, runs, messages); again != all {
		t.Errorf("it is another text:\n%s\nbefore:\n%s", again, all)
	}
	later := step(result(t, durableName+"other", 33))
	locks, _, _ := strings.Cut(all, heading(parts[1].title))
	_, box, _ := strings.Cut(all, heading(parts[2].title))
	if !strings.HasPrefix(later, locks) || !strings.HasSuffix(later, heading(parts[2].title)+box) {
		t.Errorf("another part has changed:\n%s\nbefore:\n%s", later, all)
	}
	for text, want := range map[string]int{"#### durable: other": 1, "claim of durable: other": 1, "durable: runs": 0,
		"#### mutex": 1, "claim of mutex": 1, "#### outbox: messages": 1, "\n## ": 3, "# Results\n": 1} {
		if n := strings.Count(later, text); n != want {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, want, later)
		}
	}
}

// Fails when some groups of a part may replace all of them.
func TestAPartIsMeasuredAsAWhole(t *testing.T) {
	groups := []Group{{Name: "mutex"}, {Name: "slot"}, {Name: durableName + "a"}, {Name: durableName + "b"},
		{Name: outboxName + "c"}}
	for only, ok := range map[string]bool{"": true, "^durable": true, "^outbox": true, "^[^d]": true, "mutex": false,
		"durable: a": false, "mutex|^durable": false, "nothing": true} {
		if err := whole(groups, regexp.MustCompile(only)); (err == nil) != ok {
			t.Errorf("-only %q: %v", only, err)
		}
	}
}

// The existing file has the parts that this program writes.
//
// Fails when a heading is renamed, so that the next run would lose a part.
func TestResultsHaveTheirParts(t *testing.T) {
	text, err := os.ReadFile("RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	list := chapters(string(text))
	if n := strings.Count(string(text), "\n## "); n != len(list) || n == 0 {
		t.Errorf("it has %d chapters, of which %d are known", n, len(list))
	}
}
