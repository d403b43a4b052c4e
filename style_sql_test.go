package tickslot_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// SQL statements and scripts are the hardest code to review, and review tools cut off wide lines.
// Tabs count as four columns.
//
// Fails when a wide line is added.
func TestStatementsAndScriptsAreNarrow(t *testing.T) {
	t.Parallel()
	found := filesThatEnd(t, ".sql", ".lua")
	if len(found) < 50 {
		t.Errorf("%d files only", len(found))
	}
	for path := range found {
		for i, line := range strings.Split(read(t, path), "\n") {
			columns := 120
			if strings.HasPrefix(strings.TrimSpace(line), "--") {
				columns = 100
			}
			if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > columns {
				t.Errorf("%s:%d is wider than %d columns: wrap it", path, i+1, columns)
			}
		}
	}
}

// filesThatEnd returns the files of all modules that have one of these suffixes.
func filesThatEnd(t *testing.T, ends ...string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case slices.Contains(ends, filepath.Ext(path)):
			found[filepath.ToSlash(path)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
