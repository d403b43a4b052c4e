package tickslot_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Users find the examples through the list in examples/README.md.
//
// Fails when an example is added or renamed and the list is not updated.
func TestExamplesAreListed(t *testing.T) {
	t.Parallel()
	list := read(t, "examples/README.md")
	folders, err := filepath.Glob("examples/*/*.go")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, path := range folders {
		name := filepath.Base(filepath.Dir(path))
		if link := "[" + name + "](" + name + ")"; !strings.Contains(list, link) {
			t.Errorf("examples/README.md does not have %s", link)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([a-z]+)\)`).FindAllStringSubmatch(list, -1) {
		if _, err := os.Stat("examples/" + link[1]); err != nil {
			t.Errorf("examples/README.md: there is no %s", link[1])
		}
	}
}

// The Go code on these pages comes from the files they name, so it compiles.
//
// Fails when a page or its file is changed without the other.
func TestCodeOfPagesIsThatOfExamples(t *testing.T) {
	t.Parallel()
	indentation := regexp.MustCompile(`(?m)^\t+`)
	for path, files := range map[string][]string{
		"docs/durable.md": {"durable/pgxdurable/example_test.go"},
		"docs/outbox.md":  {"outbox/pgxoutbox/example_test.go", "examples/outbox/billing.go"},
	} {
		page, code := read(t, path), ""
		for _, file := range files {
			if code += read(t, file); !strings.Contains(page, "`"+file+"`") {
				t.Errorf("%s does not name %s", path, file)
			}
		}
		code = indentation.ReplaceAllString(code, "")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
		if len(blocks) < 2 {
			t.Errorf("%s has %d blocks of code, want at least 2", path, len(blocks))
		}
		for _, block := range blocks {
			if !strings.Contains(code, indentation.ReplaceAllString(block[1], "")) {
				t.Errorf("%s: none of %v has\n%s", path, files, block[1])
			}
		}
	}
}

// These programs needed 132, 107 and 118 lines before Manager, TimerLabel, and Trigger with a
// result existed. Of all the examples, they had taken users of other libraries the most code. They
// must stay about half as long.
//
// Fails when one of them grows.
func TestProgramsAreShort(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"table": 66, "tenants": 53, "trigger": 59} {
		if n := strings.Count(read(t, "examples/"+name+"/main.go"), "\n"); n > most {
			t.Errorf("examples/%s/main.go has %d lines, want at most %d", name, n, most)
		}
	}
}
