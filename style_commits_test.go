package tickslot_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Subjects are read in lists, which cut them off after 72 columns, and by people who search for the
// commit that changed something. "say", "let" and the like describe what the code does now instead
// of the change. Commits before December 2026 are exempt. An archive has no history.
//
// Fails when a subject is wider, has no package, or begins with such a verb.
func TestSubjectsOfCommits(t *testing.T) {
	t.Parallel()
	if inside, err := exec.Command("git", "rev-parse", "--show-prefix").Output(); err != nil || len(inside) > 1 {
		return // no git, no history, or a copy of the repository
	}
	log, err := exec.Command("git", "log", "--no-merges", "--since=2026-12-01T00:00:00Z", "--format=%h %s").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if fault := faultOfSubject(subject); fault != "" {
			t.Errorf("%s %s: %s", hash, subject, fault)
		}
	}
}

func TestFaultOfSubject(t *testing.T) {
	t.Parallel()
	for subject, good := range map[string]bool{
		"timer: keep the phase after a missed tick":        true,
		"durable, outbox/httpsink: bound what is read":     true,
		".ci: run the model":                               true,
		"Revert \"timer: keep the phase\"":                 true,
		"keep the phase after a missed tick":               false,
		"timer: say that the phase is kept":                false,
		"timer: " + strings.Repeat("x", 72-len("timer: ")): true,
		"timer: " + strings.Repeat("x", 73-len("timer: ")): false,
		"timer: the phase":                                 false,
		"timer: keeps":                                     true, // words that are not in the list pass
	} {
		if fault := faultOfSubject(subject); (fault == "") != good {
			t.Errorf("%q: %q", subject, fault)
		}
	}
}

func faultOfSubject(subject string) string {
	first := regexp.MustCompile(`^[a-z0-9./_*-]+(?:, [a-z0-9./_*-]+)*: ([a-z]+)`).FindStringSubmatch(subject)
	noChange := []string{"a", "an", "be", "have", "know", "let", "look", "mention", "say", "see", "show", "tell", "the",
		"think", "want"}
	switch {
	case strings.HasPrefix(subject, "Revert "):
		return ""
	case utf8.RuneCountInString(subject) > 72:
		return "wider than 72 columns"
	case first == nil:
		return "want package: verb …"
	case slices.Contains(noChange, first[1]):
		return "want a verb that changes code: add, keep, move, rename …"
	}
	return ""
}
