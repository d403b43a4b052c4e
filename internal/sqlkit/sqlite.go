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

// InTime makes a call and returns when ctx ends, even if the disk hangs; the outcome of the call is
// then unknown. The call's own context ends slightly earlier, so that its error can still say what
// it was waiting for. InTime adds to the error how to repair its cause.
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

// pollEvery is the average time between two attempts to lock the file. All waiters try equally
// often, so none starves.
const pollEvery = time.Millisecond

// Patiently calls try until it no longer fails because of a locked file, or ctx ends.
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

// WithoutBusyTimeout is like With, but turns off SQLite's own wait for locks during the call: see
// TurnOffBusyTimeout. A panic of the driver becomes an error, because the caller of InTime is on
// another goroutine and cannot recover it.
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

// InTransaction calls do in a transaction on a connection to SQLite. The statement begin starts it
// ("BEGIN", or "BEGIN IMMEDIATE" to take the write lock at the start). The transaction is rolled
// back if do fails or ctx has ended. If the rollback also fails, the connection is closed, so it
// never returns to the pool within a transaction. On SQLite only waiting for locks takes long, and
// Patiently does that waiting, so the end of ctx interrupts no statement.
func InTransaction(ctx context.Context, conn *sql.Conn, begin string, do func() error) error {
	exec := func(statement string) error {
		_, err := conn.ExecContext(context.Background(), statement)
		return err
	}
	// This fails if other code has left a transaction open on the connection. Otherwise our rows
	// would be rolled back with that transaction.
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

// TurnOffBusyTimeout turns off SQLite's own wait for locks on a connection. That wait does not end
// with a context, and its pauses grow while callers that come later take the lock. Use Patiently
// instead, and call restore in the end.
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

// LockedTooLong adds to an error that matches SQLiteLocked that the wait for the lock has timed
// out.
func LockedTooLong(err error) error { return fmt.Errorf("%w: %w", errLocked, err) }

// SQLiteLocked reports whether a call failed because of a lock (SQLITE_BUSY, SQLITE_LOCKED) and
// therefore did nothing. It matches SQLite's own text, which all drivers pass on.
func SQLiteLocked(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "database is locked") ||
		strings.Contains(err.Error(), "database table is locked"))
}

// ExplainSQLite is like Explain, for an SQLite error. InTime calls it already.
func ExplainSQLite(err error) error {
	if errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault) {
		return err
	}
	return Explain(adviseSQLite(err))
}

// adviseSQLite adds to an SQLite error how to repair its cause.
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

// sqliteAdvices are found by SQLite's own texts, which no driver changes.
var sqliteAdvices = []struct {
	words   []string
	advice  string
	meaning error // driver.ErrSetup or driver.ErrFault if the database works but rejects the request
}{
	{
		[]string{"no such table", "no such column", "has no column", "does not match any PRIMARY KEY", "cannot store",
			"datatype mismatch", "constraint failed"},
		"the table is missing or not as this version needs it: call Migrate, or execute Schema (each " +
			"connection has its own in-memory database, " +
			"which is lost when the connection is closed: call db.SetMaxOpenConns(1))", driver.ErrSetup,
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
