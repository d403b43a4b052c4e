package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A file executes statements on a SQLite database. A connection never goes back to the pool within
// a transaction.
type file struct {
	db dialect.Pool

	// turn is held by the one call of this store that writes. The others wait here, in order and
	// without asking again and again: SQLite lets one write at a time, and it is whoever asks when
	// the lock happens to be free.
	turn chan struct{}

	mu     sync.Mutex
	open   map[any]openFile // by connection of the driver
	path   string           // of the file opened last
	looked time.Time        // when it was last looked for what is mounted
	mount  string           // what was found: see mountedFile
}

func newFile(db dialect.Pool) *file {
	return &file{db: db, turn: make(chan struct{}, 1), open: map[any]openFile{}}
}

// inTime makes a call that is back when ctx ends, even if the disk hangs: what it did then is
// unknown. It goes on no longer than until it looks at its own context the next time, which ends a
// little earlier, so that it can still say what it was waiting for.
func inTime[A any](ctx context.Context, call func(context.Context) (A, error)) (none A, _ error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(sqlkit.LastResort)
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
		return got.a, advise(got.err)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// local is the context of all statements. SQLite works in this process: what may take time is its
// locks, and these are waited for here. A statement that is interrupted would only be one more
// thing to get right.
var local = context.Background()

// read executes a statement that only reads, and returns its one row.
func read[R any](ctx context.Context, f *file, query string, args []any, dest func(*R) []any) (row R, err error) {
	err = f.with(ctx, func(conn *sql.Conn) error {
		row, err = one(scan(dest)(conn.QueryContext(local, query, args...)))
		return err
	})
	return row, err
}

// scan returns a function that takes what a query returned, and returns its rows.
func scan[R any](dest func(*R) []any) func(*sql.Rows, error) ([]R, error) {
	return func(rows *sql.Rows, err error) (all []R, _ error) {
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var r R
			if err := rows.Scan(dest(&r)...); err != nil {
				return nil, err
			}
			all = append(all, r)
		}
		return all, rows.Err()
	}
}

func one[R any](rows []R, err error) (row R, _ error) {
	if err != nil {
		return row, err
	}
	if len(rows) != 1 {
		return row, fmt.Errorf("an answer of %d rows, and not one", len(rows))
	}
	return rows[0], nil
}

// turnTime is how long a call waits for its turn, which is a matter of fairness, not of safety.
const turnTime = 100 * time.Millisecond

// write calls do within a transaction that has the lock for writing, and undoes it if do returns an
// error or ctx has ended. A statement is prepared for do before the transaction begins: that takes
// longer than to execute it, and nobody else can write meanwhile.
func (f *file) write(ctx context.Context, query string, do func(*sql.Conn, *sql.Stmt) error) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-time.After(turnTime): // whoever has it may be waiting for a disk that hangs: SQLite now and then moves what was written to its final place
	case <-ctx.Done():
	}
	return f.with(ctx, func(conn *sql.Conn) error {
		exec := func(statement string) error {
			_, err := conn.ExecContext(local, statement)
			return err
		}
		// SQLite's own way to wait knows nothing of ctx, and sleeps longer and longer while others,
		// who come later, take the lock.
		var own int
		if err := conn.QueryRowContext(local, "PRAGMA busy_timeout").Scan(&own); err != nil {
			return err
		}
		if own != 0 {
			if err := exec("PRAGMA busy_timeout = 0"); err != nil {
				return err
			}
			defer exec(fmt.Sprintf("PRAGMA busy_timeout = %d", own))
		}
		prepared, err := conn.PrepareContext(local, query)
		if err != nil {
			return err
		}
		defer prepared.Close()
		// It fails in a transaction that somebody else has left open, with which our rows would be
		// undone.
		if err := patiently(ctx, func() error { return exec("BEGIN IMMEDIATE") }); err != nil {
			return err
		}
		open := true
		defer func() {
			if !open {
				return
			}
			if err := exec("ROLLBACK"); err != nil && !strings.Contains(err.Error(), "no transaction is active") {
				dialect.Discard(conn)
			}
		}()
		if err := do(conn, prepared); err != nil {
			return err
		}
		err = patiently(ctx, func() error { return exec("COMMIT") })
		open = err != nil
		return err
	})
}

// pollEvery is how often it is tried to get a lock of the file, on average. All who wait ask
// equally often, so that none is passed over for long.
const pollEvery = time.Millisecond

// patiently tries again until ctx ends for as long as the file is locked.
func patiently(ctx context.Context, try func() error) error {
	var locked error
	for {
		if err := ctx.Err(); err != nil { // nobody waits for the answer, so it must not be a grant
			return cmp.Or(locked, err)
		}
		err := try()
		if !isLocked(err) || errors.Is(err, errLocked) {
			return err
		}
		locked = fmt.Errorf("%w: %w", errLocked, err)
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery/2 + rand.N(pollEvery)):
		}
	}
}

// with calls do, again while it fails because of a lock, with a connection that has the file open
// which is at its path now.
func (f *file) with(ctx context.Context, do func(*sql.Conn) error) error {
	guarded := func(conn *sql.Conn) (err error) {
		defer func() {
			if p := recover(); p != nil { // the caller, who is another goroutine, could not catch it
				err = fmt.Errorf("the driver panicked: %v", p)
			}
		}()
		moved, err := f.moved(conn)
		if err != nil {
			return err
		}
		if moved {
			dialect.Discard(conn)
			return driver.ErrBadConn // the next one, please
		}
		return do(conn)
	}
	return patiently(ctx, func() error { return f.db.With(ctx, guarded) })
}

// An openFile is the file that a connection has open, as it was found at its path when the
// connection was first used.
type openFile struct {
	path string
	info os.FileInfo // nil: not a file
}

// moved tells whether the file that conn has open is not at its path any more: it was deleted,
// replaced or renamed. SQLite goes on with it as if nothing had happened, while those who open the
// path now see another, without the leases of this one.
func (f *file) moved(conn *sql.Conn) (bool, error) {
	var key any
	err := conn.Raw(func(c any) error {
		key = c
		return nil
	})
	if err != nil || !reflect.TypeOf(key).Comparable() {
		return false, err
	}
	f.mu.Lock()
	file, known := f.open[key]
	f.mu.Unlock()
	if !known {
		if file.path, err = pathOf(conn); err != nil {
			return false, err
		}
		if file.path != "" {
			file.info, _ = os.Stat(file.path) // an error: some other kind of storage, which is not watched
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.path != file.path {
			f.path, f.looked = file.path, time.Time{}
		}
		if len(f.open) > 2*f.db.DB.Stats().OpenConnections+16 {
			clear(f.open) // most are closed
		}
		f.open[key] = file
		return false, nil
	}
	if file.info == nil {
		return false, nil
	}
	now, err := os.Stat(file.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, file.info) {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, key)
		return true, nil
	}
	return false, nil
}

// mountsEvery is how often it is looked at what is mounted. Links are counted at each call.
const mountsEvery = 10 * time.Second

// onePath returns an error if others may reach the file by a path that has another folder or name:
// a hard link, or a mount of the file itself. SQLite makes the names of the log and of the shared
// memory from the path, so each path has its own, and neither sees what the other commits.
func (f *file) onePath() error {
	f.mu.Lock()
	path, mount, look := f.path, f.mount, time.Since(f.looked) > mountsEvery
	f.mu.Unlock()
	if path == "" {
		return nil
	}
	if look {
		mount = mountedFile(path)
		f.mu.Lock()
		if f.path == path {
			f.looked, f.mount = time.Now(), mount
		}
		f.mu.Unlock()
	}
	const why = "who opens the file by another path has a write-ahead log of his own, and both may be granted one slot"
	if mount != "" {
		return fmt.Errorf("%w: %s is mounted as a file: %s; mount the folder that the file is in, never the file",
			dlock.ErrSetup, mount, why)
	}
	if info, err := os.Stat(path); err == nil && links(info) > 1 {
		return fmt.Errorf("%w: %s has %d names, by hard links: %s; remove the other links", dlock.ErrSetup, path,
			links(info), why)
	}
	return nil
}

// pathOf returns the path of the file that conn has open, "" if it is a database in memory, or a
// temporary one: they have none.
func pathOf(conn *sql.Conn) (string, error) {
	type file struct {
		number int
		schema string
		path   sql.NullString
	}
	files, err := scan(func(f *file) []any {
		return []any{&f.number, &f.schema, &f.path}
	})(conn.QueryContext(local, "PRAGMA database_list"))
	for _, f := range files {
		if f.schema == "main" {
			return f.path.String, nil
		}
	}
	return "", err
}

// shared returns an error if the connections of the pool are, or will be, each in a database of its
// own. exists tells whether there is something that is in the database already.
func (f *file) shared(ctx context.Context, exists string, args ...any) error {
	if f.db.DB.Stats().MaxOpenConnections == 1 {
		return nil
	}
	return f.with(ctx, func(one *sql.Conn) error {
		if path, err := pathOf(one); path != "" || err != nil {
			return err
		}
		return f.with(ctx, func(other *sql.Conn) error {
			var here, there bool
			if err := one.QueryRowContext(local, exists, args...).Scan(&here); err != nil {
				return err
			}
			if err := other.QueryRowContext(local, exists, args...).Scan(&there); err != nil {
				return err
			}
			if here != there {
				return errPrivate
			}
			return nil
		})
	})
}
