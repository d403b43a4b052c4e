package sqlkit

import (
	"errors"
	"testing"

	"github.com/tickslot/tickslot/dlock"
)

// What SQLite says of a file that somebody has to fix. A file that is locked, full, or on a disk
// that fails is a store that does not answer.
func TestMeaningOfErrorsOfSQLite(t *testing.T) {
	t.Parallel()
	means := func(what string, told, want error) {
		t.Helper()
		for _, meaning := range []error{dlock.ErrSetup, dlock.ErrFault} {
			if errors.Is(told, meaning) != (want == meaning) {
				t.Errorf("%s: %v: matches %q: %t", what, told, meaning, errors.Is(told, meaning))
			}
		}
	}
	for text, want := range map[string]error{
		"SQL logic error: no such table: distributed_locks (1)":                dlock.ErrSetup,
		"attempt to write a readonly database (8)":                             dlock.ErrSetup,
		"unable to open database file (14)":                                    dlock.ErrSetup,
		"unable to open database file: out of memory (14)":                     dlock.ErrSetup,
		"file is not a database (26)":                                          dlock.ErrSetup,
		"database disk image is malformed (11)":                                dlock.ErrSetup,
		"SQL logic error: cannot start a transaction within a transaction (1)": dlock.ErrSetup,
		"SQL logic error: near \"RETURNING\": syntax error (1)":                dlock.ErrSetup,
		"constraint failed: CHECK constraint failed (275)":                     dlock.ErrSetup,
		"authorization denied: not authorized (23)":                            dlock.ErrSetup,
		"access permission denied (3)":                                         dlock.ErrSetup,
		"database is locked (5) (SQLITE_BUSY)":                                 nil,
		"disk I/O error (10)":                                                  nil,
		"database or disk is full (13)":                                        nil,
		"interrupted (9)":                                                      nil,
	} {
		means(text, Explain(adviseSQLite(errors.New(text))), want)
	}
}
