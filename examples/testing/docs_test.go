package billing_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code in docs/testing.md is taken from these tests, so it compiles and passes.
//
// Fails when one is changed without the other.
func TestTheDocumentShowsTheseTests(t *testing.T) {
	doc, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(flat(string(text)))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) < 8 {
		t.Errorf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), flat(block[1])) {
			t.Errorf("no test of this folder has\n%s", block[1])
		}
	}
}

// flat returns code without its indentation.
func flat(code string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "")
}
