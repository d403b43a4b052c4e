package sqlkit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

// InTime makes a call that returns when ctx ends, even if the disk hangs; its outcome is then
// unknown. The call's own context ends a little earlier, so that it can still say what it was
// waiting for. InTime adds to the error how to repair it.
func InTime[A any](ctx context.Context, call func(context.Context) (A, error)) (none A, _ error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(LastResort)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	own, cancelOwn := context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, 50*time.Millisecond)))
	type answer struct {
		a   A
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer cancelOwn()
		a, err := call(own)
		done <- answer{a, err}
	}()
	select {
	case got := <-done:
		return got.a, adviseSQLite(got.err)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// pollEvery is the average time between two attempts to get a lock of the file. All waiters try
// equally often, so none starves.
const pollEvery = time.Millisecond

// Patiently calls try until it does not fail because of a locked file, or ctx ends.
func Patiently(ctx context.Context, try func() error) error {
	var locked error
	for {
		if err := ctx.Err(); err != nil { // the caller has left, so the answer must not be a grant
			return cmp.Or(locked, err)
		}
		err := try()
		if !SQLiteLocked(err) || errors.Is(err, errLocked) {
			return err
		}
		locked = LockedTooLong(err)
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery/2 + rand.N(pollEvery)):
		}
	}
}

// WithoutBusyTimeout is like With, and turns off SQLite's own wait for locks meanwhile: see
// TurnOffBusyTimeout. A panic of the driver is an error, because the caller of InTime is on another
// goroutine and cannot recover it.
func WithoutBusyTimeout(ctx context.Context, db *sql.DB, do func(*sql.Conn) error) error {
	return With(ctx, db, func(conn *sql.Conn) error {
		return guard.Call("driver", func() error {
			restore, err := TurnOffBusyTimeout(conn)
			if err != nil {
				return err
			}
			defer restore()
			return do(conn)
		})
	})
}

// InTransaction calls do in a transaction on a connection to SQLite, which the statement begin
// begins ("BEGIN", or "BEGIN IMMEDIATE" for one that has the write lock from the start). It is
// rolled back if do fails, or ctx has ended. If that fails, too, the connection is closed: it never
// goes back to the pool within a transaction. In SQLite only locks take long, and Patiently waits
// for those, so the end of ctx interrupts no statement.
func InTransaction(ctx context.Context, conn *sql.Conn, begin string, do func() error) error {
	exec := func(statement string) error {
		_, err := conn.ExecContext(context.Background(), statement)
		return err
	}
	// If other code has left a transaction open on this connection, this fails. Otherwise our rows
	// would be rolled back with it.
	if err := Patiently(ctx, func() error { return exec(begin) }); err != nil {
		return err
	}
	open := true
	defer func() {
		if !open {
			return
		}
		if err := exec("ROLLBACK"); err != nil && !strings.Contains(err.Error(), "no transaction is active") {
			Discard(conn)
		}
	}()
	if err := do(); err != nil {
		return err
	}
	err := Patiently(ctx, func() error { return exec("COMMIT") })
	open = err != nil
	return err
}

// TurnOffBusyTimeout turns off SQLite's own wait for locks on a connection, because it does not end
// with a context, and sleeps longer and longer while others, who come later, take the lock. Use
// Patiently, and call restore in the end.
func TurnOffBusyTimeout(conn *sql.Conn) (restore func(), err error) {
	ctx := context.Background() // such a call waits for nothing, so it needs no deadline
	var own int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&own); err != nil {
		return nil, err
	}
	if own == 0 {
		return func() {}, nil
	}
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return nil, err
	}
	return func() { _, _ = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", own)) }, nil
}

var errLocked = errors.New("another process, or another connection of this one, had the database locked for too long:" +
	" it is stopped, or busy with a long transaction")

// LockedTooLong adds to an error that matches SQLiteLocked that the wait for the lock is over.
func LockedTooLong(err error) error { return fmt.Errorf("%w: %w", errLocked, err) }

// SQLiteLocked reports whether a call failed because of a lock (SQLITE_BUSY, SQLITE_LOCKED), by
// SQLite's own words, which all drivers pass on. Nothing was done then.
func SQLiteLocked(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "database is locked") ||
		strings.Contains(err.Error(), "database table is locked"))
}

// ExplainSQLite is like Explain, for an error of SQLite. InTime has done so already.
func ExplainSQLite(err error) error {
	if errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault) {
		return err
	}
	return Explain(adviseSQLite(err))
}

// adviseSQLite adds to an error of SQLite how to repair it.
func adviseSQLite(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range sqliteAdvices {
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

// sqliteAdvices are found by the words of SQLite, which no driver changes.
var sqliteAdvices = []struct {
	words   []string
	advice  string
	meaning error // driver.ErrSetup or driver.ErrFault if the database works, but refuses the request
}{
	{
		[]string{"no such table", "no such column", "has no column", "does not match any PRIMARY KEY", "cannot store",
			"datatype mismatch", "constraint failed"},
		"the table is missing or not as this version needs it: call Migrate, or execute Schema (a database in " +
			"memory is one for each connection," +
			" and gone when that is closed: call db.SetMaxOpenConns(1))", driver.ErrSetup,
	},
	{[]string{"syntax error", "no such function"}, "SQLite 3.38 or newer is needed", driver.ErrSetup},
	{
		[]string{"within a transaction"},
		"a connection of the pool was left in a transaction: give the store a *sql.DB of its own",
		driver.ErrSetup,
	},
	{
		[]string{"readonly database", "unable to open database file", "permission denied", "not authorized"},
		"this process has to be able to write to the database file, and to its -wal and -shm, and to create files " +
			"in its directory", driver.ErrSetup,
	},
	{
		[]string{"is not a database"},
		"the path leads to a file that is no SQLite database, or an encrypted one", driver.ErrSetup,
	},
	{
		[]string{"disk image is malformed"},
		"the file is damaged: move it away, with its -wal and -shm, and call Migrate", driver.ErrSetup,
	},
}
