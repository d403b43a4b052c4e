package tickslot_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// copied is how many lines two products may have in common, one after the other: what is longer was
// written twice, and a protection that one of them gets does not reach the other. Move it to a
// package in internal that both use.
const copied = 10

// Two products, or two stores of one, share code and do not copy it. Comments, empty lines and
// imports do not count, nor does what is part of tests.
//
// Fails when a function is copied from one product to another.
func TestProductsShareCode(t *testing.T) {
	t.Parallel()
	at := map[string]string{} // by the lines: where they are first
	for _, path := range slices.Sorted(maps.Keys(goFiles(t))) {
		if product := productOf(path); product != "" {
			lines := codeOf(read(t, path))
			for i := range max(0, len(lines)-copied) {
				text := strings.Join(lines[i:i+copied+1], "\n")
				if first, known := at[text]; known && productOf(first) != product {
					t.Errorf("%s has %d lines, or more, of %s: move them to a package that both use:\n%s", path,
						copied+1, first, text)
					break // the lines after them are copies, too
				}
				at[text] = path
			}
		}
	}
}

// productOf returns the product of a file, "" for tests and suites. The packages beside dlock and
// cluster are stores, or what one may do without.
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

// codeOf returns the lines of a file, without comments, imports and what is empty.
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
