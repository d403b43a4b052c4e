package main

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table matches the sources, so a change to a line that a mutant replaces is detected before
// the mutants run.
//
// Fails when a text to replace is missing in its file or occurs twice, when a patch is not valid
// Go, and when a layer's folder does not exist.
func TestTableFitsTheSources(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("%s is there twice", m.name)
		}
		names[m.name] = true
		if _, err := regexp.Compile(m.says); err != nil || m.says == "" {
			t.Errorf("%s: says %q: %v", m.name, m.says, err)
		}
		if _, err := os.Stat(filepath.Join("../..", m.layer.pkg)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for _, file := range m.files() {
			text, err := os.ReadFile(filepath.Join("../..", file))
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
				continue
			}
			patched, err := m.patch(file, string(text))
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
				continue
			}
			if strings.HasSuffix(file, ".go") {
				if _, err := parser.ParseFile(token.NewFileSet(), file, patched, 0); err != nil {
					t.Errorf("%s: %v", m.name, err)
				}
			}
		}
	}
	if len(mutants) < 119 {
		t.Errorf("%d mutants, want 119 or more", len(mutants))
	}
}

// Fails when a text that occurs twice is replaced, or a missing text is not an error.
func TestPatchWantsItsTextOnce(t *testing.T) {
	m := mutant{edits: []edit{{"f", "old", "new"}}}
	if got, err := m.patch("f", "an old line"); err != nil || got != "an new line" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "old and old"} {
		if got, err := m.patch("f", text); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// The test decides which results are kills.
//
// Fails when a crash, a timeout, a layer that passes, or a layer that fails with other words counts
// as a kill.
func TestVerdict(t *testing.T) {
	failed := exec.Command("sh", "-c", "exit 1").Run()
	if _, ok := errors.AsType[*exec.ExitError](failed); !ok {
		t.Fatalf("sh -c 'exit 1': %v", failed)
	}
	test := mutant{says: "too (many|few)", layer: layer{pkg: "p", test: "T"}}
	program := mutant{says: `"broken":`, layer: layer{pkg: "p"}}
	long := strings.Repeat("x", 1000)
	for _, c := range []struct {
		what string
		m    mutant
		out  string
		err  error
		want string // "": not killed
	}{
		{"a failure", test, "=== RUN T\n    a_test.go:1: too many runs\n--- FAIL: T (0.00s)\nFAIL\n", failed,
			"a_test.go:1: too many runs"},
		{"a report", program, "hello\n{" + long + `"broken":["it is"]` + "}\n", failed, `"broken":["it is"]}`},
		{"other words", test, "    a_test.go:1: no server\n--- FAIL: T (0.00s)\nFAIL\n", failed, ""},
		{"a pass", test, "too many\n--- PASS: T (0.00s)\nPASS\n", nil, ""},
		{"a crash", test, "too many\n--- FAIL: T (0.00s)\npanic: oh\n", failed, ""},
		{"no test failed", test, "too many\n", failed, ""},
		{"a time-out", test, "too many\n--- FAIL: T (0.00s)\n", errTooLong, ""},
	} {
		line, err := verdict(c.m, c.out, c.err)
		if line != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.what, line, err, c.want)
		}
	}
}

// A layer that failed without an alarm was too weak. A layer that crashed or raised the alarm was
// not.
//
// Fails when the words of the alarm are ignored.
func TestWeak(t *testing.T) {
	failed := exec.Command("sh", "-c", "exit 1").Run()
	l := layer{alarm: "broken"}
	for out, want := range map[string]bool{"too weak": true, "broken, too weak": false, "\npanic: oh": false} {
		if l.weak(out, failed) != want {
			t.Errorf("%q: %v", out, !want)
		}
	}
	if l.weak("", nil) || l.weak("", errTooLong) || (layer{}).weak("", failed) {
		t.Error("weak without a failure, after a time-out, or although whatever fails is an alarm")
	}
}
