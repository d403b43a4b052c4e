package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const top = "../.."

// The documents list the versions on which the suites passed, and the numbers of tests, as in the
// results file.
//
// Fails when a document is edited manually, or names a server that was not run.
func TestDocumentsSayWhatWasRun(t *testing.T) {
	t.Parallel()
	all, err := read(top)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for _, r := range all {
		ran[r.Product] = true
	}
	for _, s := range servers {
		if !ran[s.Product] {
			t.Errorf("%s: no version of %s: go run ./proof/matrix -write", tested, s.Product)
		}
	}
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		if !place.Match(text) {
			t.Errorf("%s has no place for results", name)
		}
		if !bytes.Equal(fill(text, all), text) {
			t.Errorf("%s is not what %s says: go run ./proof/matrix -write", name, tested)
		}
	}
}

// If a row's tests were renamed, it would run nothing and reveal that only when it is run.
func TestSuitesHaveTests(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		for _, suite := range s.suites {
			files, err := filepath.Glob(filepath.Join(top, suite.dir, "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v", suite.dir, err)
			}
			var text []byte
			for _, file := range files {
				one, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, one...)
			}
			for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(suite.run, -1) {
				if !bytes.Contains(text, []byte("func "+name+"(")) {
					t.Errorf("%s has no %s", suite.dir, name)
				}
			}
		}
	}
}

// A test with subtests does not count itself.
func TestLeavesAreCounted(t *testing.T) {
	t.Parallel()
	out := "--- PASS: TestA (0.00s)\n    --- PASS: TestA/one (0.00s)\n    --- PASS: TestA/two (0.00s)\n" +
		"    --- FAIL: TestA/three (0.00s)\n--- PASS: TestB (0.00s)\n"
	if n := leaves(out); n != 3 {
		t.Errorf("%d, want 3", n)
	}
}
