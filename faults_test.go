package tickslot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every fault in proof/faults.md states its effect on the limits, and names its test or says that
// there is none. The tests and the cross-referenced rows exist.
//
// Fails when a test is renamed, a row is removed, or a row names no test or does not mention the
// limits.
func TestFaultsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("proof/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^\| (\d+) \|(.*)\|$`)
	named := regexp.MustCompile("`([a-z/]*)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)(?:/[^`]*)?`")
	rows, untested := 0, 0
	for line := range strings.Lines(string(doc)) {
		cells := row.FindStringSubmatch(strings.TrimSpace(line))
		if cells == nil {
			continue
		}
		rows++
		if cells[1] != fmt.Sprint(rows) {
			t.Errorf("row %s follows row %d", cells[1], rows-1)
		}
		parts := strings.Split(cells[2], " | ")
		shown := parts[len(parts)-1]
		switch len(parts) {
		case 2: // a row of the other guarantees
		case 4:
			if limits := parts[1]; !strings.Contains(limits, "kept") && !strings.Contains(limits, "never") &&
				!strings.Contains(limits, "as an outage") && !strings.Contains(limits, "**") {
				t.Errorf("row %d: says neither that limits are kept nor, in bold, how they are not: %s", rows, limits)
			}
		default:
			t.Errorf("row %d: %d cells after the number, want what happens, limits, what tickslot does, shown by", rows,
				len(parts))
		}
		tests := named.FindAllStringSubmatch(shown, -1)
		if declared := strings.Contains(shown, "declared, not tested"); declared {
			untested++
		} else if len(tests) == 0 {
			t.Errorf("row %d: names no test and does not say that there is none", rows)
		}
		if strings.Count(shown, "Test")+strings.Count(shown, "Fuzz") != len(tests) {
			t.Errorf("row %d: a test that is not written as `package.TestName`: %s", rows, shown)
		}
		for _, test := range tests {
			if !defined(t, test[1], test[2]) {
				t.Errorf("row %d: there is no %s in folder %q", rows, test[2], test[1])
			}
		}
	}
	if rows < 275 {
		t.Errorf("%d rows: want all 275", rows)
	}
	for _, m := range regexp.MustCompile(`\brows? (\d+)(?: and (\d+))?`).FindAllStringSubmatch(string(doc), -1) {
		for _, number := range m[1:] {
			if n, err := strconv.Atoi(number); err == nil && (n < 1 || n > rows) {
				t.Errorf("there is no row %d", n)
			}
		}
	}
	t.Logf("%d rows, in %d of them something is declared and not tested", rows, untested)
}

// defined reports whether a folder's test files declare a test.
func defined(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(".", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
