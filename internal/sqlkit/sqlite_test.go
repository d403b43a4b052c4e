package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/tickslot/tickslot/dlock/driver"
)

// These are SQLite's errors for a file that must be repaired. If a file is locked, full, or on a
// failing disk, the store counts as not answering.
func TestMeaningOfErrorsOfSQLite(t *testing.T) {
	t.Parallel()
	means := func(what string, told, want error) {
		t.Helper()
		for _, meaning := range []error{driver.ErrSetup, driver.ErrFault} {
			if errors.Is(told, meaning) != (want == meaning) {
				t.Errorf("%s: %v: matches %q: %t", what, told, meaning, errors.Is(told, meaning))
			}
		}
	}
	for text, want := range map[string]error{
		"SQL logic error: no such table: distributed_locks (1)":                driver.ErrSetup,
		"attempt to write a readonly database (8)":                             driver.ErrSetup,
		"unable to open database file (14)":                                    driver.ErrSetup,
		"unable to open database file: out of memory (14)":                     driver.ErrSetup,
		"file is not a database (26)":                                          driver.ErrSetup,
		"database disk image is malformed (11)":                                driver.ErrSetup,
		"SQL logic error: cannot start a transaction within a transaction (1)": driver.ErrSetup,
		"SQL logic error: near \"RETURNING\": syntax error (1)":                driver.ErrSetup,
		"constraint failed: CHECK constraint failed (275)":                     driver.ErrSetup,
		"authorization denied: not authorized (23)":                            driver.ErrSetup,
		"access permission denied (3)":                                         driver.ErrSetup,
		"database is locked (5) (SQLITE_BUSY)":                                 nil,
		"disk I/O error (10)":                                                  nil,
		"database or disk is full (13)":                                        nil,
		"interrupted (9)":                                                      nil,
	} {
		means(text, Explain(adviseSQLite(errors.New(text))), want)
	}
}

// ncruces is an error like those of the driver ncruces/go-sqlite3, which have the methods of
// net.Error.
type ncruces string

func (e ncruces) Error() string { return "sqlite3: " + string(e) }

func (ncruces) Timeout() bool { return false }

func (ncruces) Temporary() bool { return false }

// A transient error is no reason to check the setup.
//
// Fails when a missing table counts as transient because of the methods of its error: it would
// never be created.
func TestErrorsThatPass(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("database is locked (5) (SQLITE_BUSY)"), LockedTooLong(errors.New("database table is locked")),
		fmt.Errorf("the database did not answer: %w", context.DeadlineExceeded), fmt.Errorf("read: %w", io.EOF),
		&net.OpError{Op: "dial", Err: errors.New("connection refused")},
		errors.New("Error 1205 (HY000): Lock wait timeout exceeded"),
		errors.New("Error 1213 (40001): Deadlock found when trying to get lock"),
	} {
		if !Passes(err) {
			t.Errorf("%v does not pass", err)
		}
	}
	for _, err := range []error{
		nil, errors.New("no such table: a"), errors.New("views may not be indexed"),
		errors.New("Error 1142 (42000): CREATE command denied to user"),
		fmt.Errorf("verify: %w", ncruces("SQL logic error: no such table: a")),
	} {
		if Passes(err) {
			t.Errorf("%v passes", err)
		}
	}
}
