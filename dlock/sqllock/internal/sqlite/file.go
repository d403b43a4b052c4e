package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// file executes statements on a SQLite database. It never returns a connection to the pool within a
// transaction.
type file struct {
	db dialect.Pool

	// turn is held by the one call of this store that writes. The others queue here instead of
	// polling: SQLite admits one writer at a time, in no order.
	turn chan struct{}

	mu     sync.Mutex
	open   map[any]openFile // by connection of the driver
	path   string           // of the file opened last
	looked time.Time        // when the mounts were last read
	mount  string           // what was found: see mountedFile
}

func newFile(db dialect.Pool) *file {
	return &file{db: db, turn: make(chan struct{}, 1), open: map[any]openFile{}}
}

var errPrivate = fmt.Errorf("%w: each connection of the pool has a database in memory of its own: call "+
	"db.SetMaxOpenConns(1), or name a file", dlock.ErrSetup)

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

// read executes a statement that only reads, and returns its one row.
func read[R any](ctx context.Context, f *file, query string, args []any, dest func(*R) []any) (row R, err error) {
	err = f.with(ctx, func(conn *sql.Conn) error {
		row, err = one(scan(dest)(conn.QueryContext(local, query, args...)))
		return err
	})
	return row, err
}

// scan returns a function that scans the result of a query into rows.
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

// turnTime bounds the wait for turn, which is for fairness only, not for safety.
const turnTime = 100 * time.Millisecond

// write calls do in a transaction that has the write lock, and rolls back if do fails or ctx has
// ended. It prepares query before the transaction begins, because preparing takes longer than
// executing, and would keep all other writers waiting.
func (f *file) write(ctx context.Context, query string, do func(*sql.Conn, *sql.Stmt) error) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-time.After(turnTime): // the writer may be waiting for a disk that hangs, in a checkpoint
	case <-ctx.Done():
	}
	return f.with(ctx, func(conn *sql.Conn) error {
		restore, err := sqlkit.TurnOffBusyTimeout(conn)
		if err != nil {
			return err
		}
		defer restore()
		prepared, err := conn.PrepareContext(local, query)
		if err != nil {
			return err
		}
		defer prepared.Close()
		return sqlkit.InTransaction(ctx, conn, "BEGIN IMMEDIATE", func() error { return do(conn, prepared) })
	})
}

// with calls do with a connection whose file is still the one at its path. It calls do again while
// it fails because of a lock.
func (f *file) with(ctx context.Context, do func(*sql.Conn) error) error {
	guarded := func(conn *sql.Conn) error {
		// The caller runs on another goroutine, and cannot recover a panic of the driver.
		return guard.Call("driver", func() error {
			moved, err := f.moved(conn)
			if err != nil {
				return err
			}
			if moved {
				sqlkit.Discard(conn)
				return driver.ErrBadConn // release the turn
			}
			return do(conn)
		})
	}
	return sqlkit.Patiently(ctx, func() error { return f.db.With(ctx, guarded) })
}

// openFile is the file of a connection, as found at its path when the connection was first used.
type openFile struct {
	path string
	info os.FileInfo // nil: not a file
}

// moved reports whether the file of conn is no longer at its path: it was deleted, replaced or
// renamed. SQLite would go on using it, while others open a new file without these leases.
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

// mountsEvery is how often the mounts are read. Links are counted at every call.
const mountsEvery = 10 * time.Second

// onePath returns an error if the file can be reached by a path in another folder or with another
// name: by a hard link, or a mount of the file itself. SQLite derives the names of the log and the
// shared memory from the path, so users of two paths do not see each other's commits.
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
	const why = "a process that uses another path has a write-ahead log of its own, and both may be granted one slot"
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

// pathOf returns the path of the main file of conn, "" for a database in memory or a temporary one.
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

// shared returns an error if each connection of the pool has a database of its own. The query
// exists reports whether the table exists.
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
