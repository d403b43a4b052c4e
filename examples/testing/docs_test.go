package billing_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code in docs/guide.md comes from these tests and from package examples, so it compiles and
// passes.
//
// Fails when one is changed without the other.
func TestTheGuideShowsExamples(t *testing.T) {
	doc, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	here := codeOf(t, "*_test.go")
	elsewhere := codeOf(t, "../../service/*/example_test.go") + codeOf(t, "../../schedule/example_test.go") +
		codeOf(t, "../../timer/example_*_test.go")
	tests := 0
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		switch code := flat(block[1]); {
		case strings.Contains(here, code):
			tests++
		case !strings.Contains(elsewhere, code):
			t.Errorf("no test of this folder and no example has\n%s", code)
		}
	}
	if tests < 8 {
		t.Errorf("%d blocks are of tests", tests)
	}
}

// codeOf returns the contents of the files that match a pattern.
func codeOf(t *testing.T, pattern string) string {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(flat(string(text)))
	}
	return code.String()
}

// flat returns code without its indentation.
func flat(code string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "")
}
