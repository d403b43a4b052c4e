package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

// Every cell of the table names existing tests, or a reason why the protection does not apply.
//
// Fails when a store or a product lacks the test for a protection, and when a test is renamed.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	parsed, faults := parse(slices.Concat(rows, databaseRows), columns, groups)
	for _, f := range faults {
		t.Error(f)
	}
	for _, f := range parsed.tests(true) {
		for _, name := range f.names {
			function, _, _ := strings.Cut(name, "/")
			if !defined(t, f.folder, function) {
				t.Errorf("there is no %s in folder %s", function, f.folder)
			}
		}
	}
	t.Logf("%+v", parsed.sums())
}

// defined reports whether a folder's test files declare a test.
func defined(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		return strings.Contains(read(t, file), "\nfunc "+name+"(")
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each store and each product has a column.
//
// Fails when a store or a product is added without stating its protections.
func TestEveryStoreAndProductHasAColumn(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, c := range columns {
		has[c.folder] = true
	}
	var found []string
	// A lock store, and a registry store, has the first method of its contract.
	for folder, method := range map[string]string{
		"dlock": `\nfunc \([a-z]+ \*?[A-Z]\w*\) TryAcquire\(`, "cluster": `\nfunc \([a-z]+ \*?[A-Z]\w*\) Sweep\(`,
	} {
		found = append(found, foldersWith(t, folder, regexp.MustCompile(method))...)
	}
	// The other columns have a folder or a file for each database.
	for _, folder := range []string{"dlock/sqllock/internal", "durable/internal"} {
		found = append(found, subfolders(t, folder)...)
	}
	var files []string
	for _, pattern := range []string{"outbox/internal/sqlstore/sql/relay.*.sql", "cluster/sqlregistry/sql/*.*.sql"} {
		list, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil || len(list) == 0 {
			t.Fatalf("no statements in %s: %v", pattern, err)
		}
		files = append(files, list...)
	}
	for _, file := range files {
		found = append(found, relative(t, file))
	}
	found = append(found, subfolders(t, ".")...)
	for _, folder := range found {
		reason, known := noColumns[folder]
		switch {
		case has[folder] && known:
			t.Errorf("%s has a column, and is said to need none: %s", folder, reason)
		case !has[folder] && !known:
			t.Errorf("%s has no column in the table: add one, and fill it", folder)
		}
	}
	for folder := range noColumns {
		if !slices.Contains(found, folder) {
			t.Errorf("%s is said to need no column, and does not exist", folder)
		}
	}
	for _, c := range columns {
		if _, err := os.Stat(filepath.Join(top, c.folder)); err != nil {
			t.Errorf("column %s: %v", c.name, err)
		}
	}
}

// foldersWith returns the subfolders whose code, except tests, matches.
func foldersWith(t *testing.T, below string, code *regexp.Regexp) (found []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(top, below), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder := relative(t, filepath.Dir(path))
		if code.MatchString(read(t, path)) && !slices.Contains(found, folder) {
			found = append(found, folder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// subfolders returns the subfolders of a folder.
func subfolders(t *testing.T, of string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(top, of))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			found = append(found, filepath.ToSlash(filepath.Join(of, e.Name())))
		}
	}
	return found
}

func relative(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Rel(top, path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(path)
}

// Fails when a faulty table passes, or the sums are wrong.
func TestFaultsOfATableAreFound(t *testing.T) {
	t.Parallel()
	three := []column{{"a", "timer"}, {"b", "leader"}, {"c", "health"}}
	for _, tt := range []struct {
		cells map[string]string
		want  string // part of the only fault, or ""
		sums  sums
	}{
		{map[string]string{"a, b": "timer.TestX; leader.TestY/a b", "c": "no: it keeps nothing"}, "",
			sums{Rows: 1, Columns: 3, Cells: 3, Shown: 2, Excused: 1}},
		{map[string]string{"b": "timer.TestX", "both": "timer.TestY", "c": "no: it keeps nothing"}, "",
			sums{Rows: 1, Columns: 3, Cells: 3, Shown: 2, Excused: 1}},
		{map[string]string{"a, b": "timer.TestX", "both, c": "timer.TestY", "both": "timer.TestZ"},
			"both stands for no column", sums{Rows: 1, Columns: 3, Cells: 3, Shown: 3}},
		{map[string]string{"a, b": "timer.TestX"}, "nothing shows it in c",
			sums{Rows: 1, Columns: 3, Cells: 3, Shown: 2, Missing: 1}},
		{map[string]string{"a, b": "timer.TestX", "c": "no: "}, "neither folder.TestName nor a reason",
			sums{Rows: 1, Columns: 3, Cells: 3, Shown: 3}},
		{map[string]string{"a, b": "timer.TestX", "b, c": "timer.TestX"}, "b is filled twice",
			sums{Rows: 1, Columns: 3, Cells: 3, Shown: 4}},
		{map[string]string{"a, b, c, d": "timer.TestX"}, `there is no column "d"`,
			sums{Rows: 1, Columns: 3, Cells: 3, Shown: 3}},
	} {
		parsed, faults := parse([]row{{"p", tt.cells}}, three, map[string][]string{"both": {"a", "b"}})
		switch {
		case tt.want == "" && len(faults) > 0, tt.want != "" && len(faults) != 1,
			tt.want != "" && !strings.Contains(faults[0].Error(), tt.want):
			t.Errorf("%v: %v, want %q", tt.cells, faults, tt.want)
		}
		if got := parsed.sums(); got != tt.sums {
			t.Errorf("%v: %+v, want %+v", tt.cells, got, tt.sums)
		}
	}
	got := folderTests{"timer", []string{"TestX", "TestY/a b"}}.pattern()
	if want := `^TestX$|^TestY$/^a_b$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Fails when a group of subtests passes although one of them fails or all were skipped.
func TestResultOfAGroup(t *testing.T) {
	t.Parallel()
	results := map[string]string{"TestX": "pass", "TestY/a/one": "pass", "TestY/a/two": "skip", "TestY/b/one": "skip",
		"TestY/c/one": "fail", "TestY/c/two": "pass"}
	for name, want := range map[string]string{"TestX": "pass", "TestY/a": "pass", "TestY/b": "skip", "TestY/c": "fail",
		"TestY/d": "", "TestY/a/two": "skip"} {
		for range 10 { // for different map orders
			if got := resultOf(results, name); got != want {
				t.Fatalf("%s: %q, want %q", name, got, want)
			}
		}
	}
}
