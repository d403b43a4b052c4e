package testkit

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Fails when a field without a comment gets the comment of a field that does not name it, and when
// a trailing comment, or a comment in a test or on an unexported name, counts.
func TestFieldComments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go": `package a

			type Config struct {
				// Rate and Per bound
				// something. Default 0: nothing.
				Rate int
				Per  time.Duration
				Else int

				Name string // Default "".
				// Both are small.
				A, B  int
				hidden int
			}
		`,
		"a_test.go": "package a\ntype Test struct {\n// Of is of a test.\nOf int }",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bound := "Rate and Per bound something. Default 0: nothing."
	want := map[string]string{"Config.Rate": bound, "Config.Per": bound, "Config.Else": "", "Config.Name": "",
		"Config.A": "Both are small.", "Config.B": "Both are small."}
	if got := FieldComments(t, dir); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Fails when a comment with another default is accepted, such as 30 s for 3 s, or 15 s for 15 min.
func TestSaysDefault(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]bool{
		"TTL is how long. Default 15 s.": true, "Default 15 s: long.": true, "Default 15 s, or more.": true,
		"Default 15 ms.": false, "Default 15 secrets.": false, "Default 115 s.": false, "Of 15 s.": false, "": false,
	} {
		if got := saysDefault(comment, 15*time.Second); got != want {
			t.Errorf("%q: %t, want %t", comment, got, want)
		}
	}
	for value, want := range map[any]string{
		0: "0", 0.2: "0.2", 16: "16", time.Duration(0): "0", 1500 * time.Millisecond: "1500 ms", time.Hour: "1 h",
		24 * time.Hour: "24 h", 48 * time.Hour: "2 days", 90 * time.Minute: "90 min",
	} {
		if got := inWords(value); got != want {
			t.Errorf("%v is %q, want %q", value, got, want)
		}
	}
}
