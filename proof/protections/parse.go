package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A column is a store or a product.
type column struct {
	name string
	// folder is the column's folder, or a file if the folder contains several columns.
	folder string
}

// A row is a protection. The keys of cells are names of columns or of groups of columns, separated
// by commas. A group stands for those of its columns that the row does not name. A value is either
// the tests that show the protection, or "no: " and the reason why it does not apply. Each test is
// folder.TestName or folder.TestName/subtest. Tests are separated by "; ", and " (long)" marks a
// test that only make proof WHAT=long runs.
type row struct {
	protection string
	cells      map[string]string
}

// A table is the parsed rows and columns.
type table struct {
	columns []column
	rows    []parsedRow
	missing int
}

type parsedRow struct {
	protection string
	cells      []cell // in the order of the columns
}

// A cell is one value of a row, for one or more columns.
type cell struct {
	columns []string
	tests   []testName
	reason  string // why the protection does not apply, or ""
}

func (c cell) String() string {
	if c.reason != "" {
		return "– " + c.reason
	}
	names := make([]string, len(c.tests))
	for i, t := range c.tests {
		names[i] = t.folder + "." + t.name
		if t.long {
			names[i] += " (make proof WHAT=long)"
		}
	}
	return strings.Join(names, ", ")
}

// A testName is a test, or a subtest, in a folder.
type testName struct {
	folder, name string
	long         bool // only make proof WHAT=long runs it
}

var testForm = regexp.MustCompile(`^([a-z][a-z/]*)\.(Test[A-Za-z0-9_]+(?:/[^()]+)?)( \(long\))?$`)

// parse returns the table and all its faults: a cell that is missing, filled twice, or for an
// unknown column, or whose value has neither tests nor a reason.
func parse(rows []row, columns []column, groups map[string][]string) (t table, faults []error) {
	fault := func(r row, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", r.protection, fmt.Sprintf(format, args...)))
	}
	place := map[string]int{}
	for i, c := range columns {
		place[c.name] = i
	}
	t.columns = columns
	for _, r := range rows {
		parsed := parsedRow{protection: r.protection}
		named, filled := map[string]bool{}, map[string]bool{}
		for key := range r.cells {
			for _, name := range strings.Split(key, ", ") {
				named[name] = true
			}
		}
		for _, key := range slices.Sorted(maps.Keys(r.cells)) {
			var c cell
			for _, name := range strings.Split(key, ", ") {
				if group, ok := groups[name]; ok {
					for _, member := range group {
						if !named[member] {
							c.columns = append(c.columns, member)
						}
					}
				} else if _, ok := place[name]; ok {
					c.columns = append(c.columns, name)
				} else {
					fault(r, "there is no column %q", name)
				}
			}
			for _, name := range c.columns {
				if filled[name] {
					fault(r, "%s is filled twice", name)
				}
				filled[name] = true
			}
			if len(c.columns) == 0 {
				fault(r, "%s stands for no column", key)
				continue
			}
			slices.SortFunc(c.columns, func(a, b string) int { return place[a] - place[b] })
			value := r.cells[key]
			if reason, ok := strings.CutPrefix(value, "no: "); ok && strings.TrimSpace(reason) != "" {
				c.reason = reason
			} else {
				for _, text := range strings.Split(value, "; ") {
					m := testForm.FindStringSubmatch(text)
					if m == nil {
						fault(r, "%s: %q is neither folder.TestName nor a reason", key, text)
						continue
					}
					c.tests = append(c.tests, testName{m[1], m[2], m[3] != ""})
				}
			}
			parsed.cells = append(parsed.cells, c)
		}
		slices.SortFunc(parsed.cells, func(a, b cell) int { return place[a.columns[0]] - place[b.columns[0]] })
		for _, c := range columns {
			if !filled[c.name] {
				t.missing++
				fault(r, "nothing shows it in %s, and no reason is given", c.name)
			}
		}
		t.rows = append(t.rows, parsed)
	}
	return t, faults
}

// sums are the last line of the output.
type sums struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
	Cells   int `json:"cells"`
	Shown   int `json:"shown"`
	Excused int `json:"excused"`
	Missing int `json:"missing"`
}

func (t table) sums() sums {
	s := sums{Rows: len(t.rows), Columns: len(t.columns), Cells: len(t.rows) * len(t.columns), Missing: t.missing}
	for _, r := range t.rows {
		for _, c := range r.cells {
			if c.reason != "" {
				s.Excused += len(c.columns)
			} else {
				s.Shown += len(c.columns)
			}
		}
	}
	return s
}

// folderTests are the tests of one folder.
type folderTests struct {
	folder string
	names  []string
}

// tests returns every test in the table once, by folder, with or without the long ones.
func (t table) tests(long bool) (byFolder []folderTests) {
	names := map[string]map[string]bool{}
	for _, r := range t.rows {
		for _, c := range r.cells {
			for _, test := range c.tests {
				if test.long && !long {
					continue
				}
				if names[test.folder] == nil {
					names[test.folder] = map[string]bool{}
				}
				names[test.folder][test.name] = true
			}
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(names)) {
		byFolder = append(byFolder, folderTests{folder, slices.Sorted(maps.Keys(names[folder]))})
	}
	return byFolder
}

// pattern returns the argument of go test -run that selects exactly these tests.
func (f folderTests) pattern() string {
	var all []string
	for _, name := range f.names {
		var levels []string
		for _, level := range strings.Split(strings.ReplaceAll(name, " ", "_"), "/") {
			levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
		}
		all = append(all, strings.Join(levels, "/"))
	}
	return strings.Join(all, "|")
}
