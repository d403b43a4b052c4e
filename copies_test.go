package tickslot_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// copied is how many consecutive lines two products may have in common. Longer passages are copies,
// and a fix in one does not reach the other. Move them to a package in internal that both use.
const copied = 10

// Products, and the stores of a product, share code instead of copying it. Comments, empty lines,
// imports and tests do not count.
//
// Fails when a function is copied from one product to another.
func TestProductsShareCode(t *testing.T) {
	t.Parallel()
	at := map[string]string{} // by lines: the place of their first occurrence
	for _, path := range slices.Sorted(maps.Keys(goFiles(t))) {
		if product := productOf(path); product != "" {
			lines := codeOf(read(t, path))
			for i := range max(0, len(lines)-copied) {
				text := strings.Join(lines[i:i+copied+1], "\n")
				if first, known := at[text]; known && productOf(first) != product {
					t.Errorf("%s has %d lines, or more, of %s: move them to a package that both use:\n%s", path,
						copied+1, first, text)
					break // the lines after them are copies too
				}
				at[text] = path
			}
		}
	}
}

// productOf returns the product of a file, or "" for tests and suites. The packages beside dlock
// and cluster are stores or optional features.
func productOf(path string) string {
	folders := strings.Split(path, "/")
	switch {
	case strings.HasSuffix(path, "_test.go") || slices.ContainsFunc(folders, func(f string) bool {
		return strings.HasSuffix(f, "test")
	}):
		return ""
	case slices.Contains([]string{"timer", "durable", "outbox", "leader", "health", "schedule", "cmd"}, folders[0]):
		return folders[0]
	case (folders[0] == "dlock" || folders[0] == "cluster") && len(folders) > 2:
		return folders[0] + "/" + folders[1]
	case folders[0] == "dlock" || folders[0] == "cluster":
		return folders[0]
	}
	return ""
}

// codeOf returns the lines of a file without comments, imports and empty lines.
func codeOf(text string) (lines []string) {
	imports := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "import (":
			imports = true
		case imports:
			imports = line != ")"
		case line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "package "):
			lines = append(lines, line)
		}
	}
	return lines
}
