package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/dlock"
)

var (
	errLocked = errors.New("another process, or another connection of this one, had the database locked for too long:" +
		" it is stopped, or busy with a long transaction")
	errPrivate = fmt.Errorf("%w: each connection of the pool has a database in memory of its own: call "+
		"db.SetMaxOpenConns(1), or name a file", dlock.ErrSetup)
)

// isLocked reports whether a call failed because of a lock (SQLITE_BUSY, SQLITE_LOCKED), by
// SQLite's own words, which all drivers pass on. Nothing was done then.
func isLocked(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "database is locked") ||
		strings.Contains(err.Error(), "database table is locked"))
}

// advise adds to an error of SQLite what to do about it.
func advise(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range advices {
		for _, words := range a.words {
			if strings.Contains(err.Error(), words) {
				if a.meaning != nil {
					return fmt.Errorf("%w: %s: %w", a.meaning, a.advice, err)
				}
				return fmt.Errorf("%s: %w", a.advice, err)
			}
		}
	}
	return err
}

// advices are found by the words of SQLite, which no driver changes.
var advices = []struct {
	words   []string
	advice  string
	meaning error // dlock.ErrSetup or dlock.ErrFault if the database works, but refuses the request
}{
	{
		[]string{"no such table", "no such column", "has no column", "does not match any PRIMARY KEY", "cannot store",
			"datatype mismatch", "constraint failed"},
		"the table is missing or not as this version needs it: call Migrate, or execute Schema (a database in " +
			"memory is one for each connection," +
			" and gone when that is closed: call db.SetMaxOpenConns(1))", dlock.ErrSetup,
	},
	{[]string{"syntax error", "no such function"}, "SQLite 3.38 or newer is needed", dlock.ErrSetup},
	{
		[]string{"within a transaction"},
		"a connection of the pool was left in a transaction: give the store a *sql.DB of its own",
		dlock.ErrSetup,
	},
	{
		[]string{"readonly database", "unable to open database file", "permission denied", "not authorized"},
		"this process has to be able to write to the database file, and to its -wal and -shm, and to create files " +
			"in its directory", dlock.ErrSetup,
	},
	{
		[]string{"is not a database"},
		"the path leads to a file that is no SQLite database, or an encrypted one", dlock.ErrSetup,
	},
	{
		[]string{"disk image is malformed"},
		"the file is damaged: move it away, with its -wal and -shm, and call Migrate", dlock.ErrSetup,
	},
}
