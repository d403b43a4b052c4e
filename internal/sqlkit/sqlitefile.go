package sqlkit

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

// A File executes statements on a SQLite database, for the processes of one machine. It never
// returns a connection to the pool within a transaction.
type File struct {
	DB *sql.DB

	// turn is held by the one call of this store that writes. The other calls queue here instead of
	// polling, because SQLite admits one writer at a time, in no particular order.
	turn chan struct{}

	mu     sync.Mutex
	open   map[any]openFile // by connection of the driver
	path   string           // of the most recently opened file
	looked time.Time        // when the mounts were last read
	mount  string           // the result: see mountedFile
}

// NewFile returns a File for a pool. It does not open the file.
func NewFile(db *sql.DB) *File {
	return &File{DB: db, turn: make(chan struct{}, 1), open: map[any]openFile{}}
}

// local is the context of statements: see Do.
var local = context.Background()

var errPrivate = fmt.Errorf("%w: each connection of the pool has its own in-memory database: call "+
	"db.SetMaxOpenConns(1), or name a file", driver.ErrSetup)

// turnTime is the maximum duration of a turn. Turns serve fairness, not safety, and the writer may
// be waiting for a hanging disk in a checkpoint.
const turnTime = 100 * time.Millisecond

// Turn waits until no other call of this File is writing, the writing call has had turnTime, or ctx
// ends. Call release in the end.
func (f *File) Turn(ctx context.Context) (release func()) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	pass := sync.OnceFunc(func() { <-f.turn })
	timer := time.AfterFunc(turnTime, pass)
	return func() {
		timer.Stop()
		pass()
	}
}

// Do makes a call and returns when ctx ends, even if the disk hangs. It repeats the call while the
// file is locked. If ctx ends first, the call continues after Do has returned, so it must not write
// to variables of the caller. Statements do not end with a context: on SQLite only waiting for
// locks takes long, and Go does that waiting.
func Do[A any](ctx context.Context, f *File, call func(*sql.Conn) (A, error)) (none A, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	answer, err := InTime(ctx, func(ctx context.Context) (a A, err error) {
		err = f.With(ctx, func(conn *sql.Conn) error {
			restore, err := TurnOffBusyTimeout(conn)
			if err != nil {
				return err
			}
			defer restore()
			a, err = call(conn)
			return err
		})
		return a, err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

// Read is like Do, in a transaction that sees a consistent state of the database.
func Read[A any](ctx context.Context, f *File, call func(*sql.Conn) (A, error)) (A, error) {
	return transact(ctx, f, "BEGIN", call)
}

// Write is like Do, in a transaction that takes the write lock at the start.
func Write[A any](ctx context.Context, f *File, call func(*sql.Conn) (A, error)) (A, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, LastResort)
		defer cancel()
	}
	defer f.Turn(ctx)()
	return transact(ctx, f, "BEGIN IMMEDIATE", call)
}

func transact[A any](ctx context.Context, f *File, begin string, call func(*sql.Conn) (A, error)) (A, error) {
	return Do(ctx, f, func(conn *sql.Conn) (a A, err error) {
		err = InTransaction(ctx, conn, begin, func() (err error) {
			a, err = call(conn)
			return err
		})
		return a, err
	})
}

// With calls do with a connection whose file is still the one at its path. It repeats do while do
// fails because of a lock.
func (f *File) With(ctx context.Context, do func(*sql.Conn) error) error {
	guarded := func(conn *sql.Conn) error {
		// The caller runs on another goroutine and cannot recover a panic of the driver.
		return guard.Call("driver", func() error {
			moved, err := f.moved(conn)
			if err != nil {
				return err
			}
			if moved {
				Discard(conn)
				return sqldriver.ErrBadConn // releases the turn
			}
			return do(conn)
		})
	}
	return Patiently(ctx, func() error { return With(ctx, f.DB, guarded) })
}

// openFile is the file of a connection: the one at its path when the connection was first used.
type openFile struct {
	path string
	info os.FileInfo // nil if it is not a file
}

// moved reports whether the file of conn is no longer at its path because it was deleted, replaced
// or renamed. SQLite would continue to use it, while other processes open a new file without its
// rows.
func (f *File) moved(conn *sql.Conn) (bool, error) {
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
		if file.path, err = PathOf(conn); err != nil {
			return false, err
		}
		if file.path != "" {
			file.info, _ = os.Stat(file.path) // on an error it is not a file, and is not watched
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.path != file.path {
			f.path, f.looked = file.path, time.Time{}
		}
		if len(f.open) > 2*f.DB.Stats().OpenConnections+16 {
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

// mountsEvery is the interval between two reads of the mounts. Links are counted at every call.
const mountsEvery = 10 * time.Second

// OnePath returns an error if the file can be reached by a path in another folder or with another
// name: by a hard link, or because the file itself is mounted. SQLite derives the names of the log
// and the shared memory from the path, so users of two paths do not see each other's commits.
func (f *File) OnePath() error {
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
	const why = "a process that uses another path has a write-ahead log of its own, and neither sees what the other " +
		"commits"
	if mount != "" {
		return fmt.Errorf("%w: %s is mounted as a file: %s; mount the folder that the file is in, never the file",
			driver.ErrSetup, mount, why)
	}
	if info, err := os.Stat(path); err == nil && links(info) > 1 {
		return fmt.Errorf("%w: %s has %d names, by hard links: %s; remove the other links", driver.ErrSetup, path,
			links(info), why)
	}
	return nil
}

// PathOf returns the path of conn's main file, or "" for an in-memory or temporary database.
func PathOf(conn *sql.Conn) (path string, err error) {
	err = EachRow(local, conn, "PRAGMA database_list", nil, func(rows *sql.Rows) error {
		var number int
		var schema string
		var file sql.NullString
		err := rows.Scan(&number, &schema, &file)
		if schema == "main" {
			path = file.String
		}
		return err
	})
	return path, err
}

// pair is held by the one call that has a connection and waits for another one from the same pool.
// Two such calls could otherwise wait for each other until their contexts end.
var pair = make(chan struct{}, 1)

// Shared returns an error if each connection of the pool has its own database. The query exists
// reports whether the table exists.
func (f *File) Shared(ctx context.Context, exists string, args ...any) error {
	if f.DB.Stats().MaxOpenConnections == 1 {
		return nil
	}
	var path string
	err := f.With(ctx, func(conn *sql.Conn) (err error) {
		path, err = PathOf(conn)
		return err
	})
	if path != "" || err != nil {
		return err
	}
	select {
	case pair <- struct{}{}:
		defer func() { <-pair }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return f.With(ctx, func(one *sql.Conn) error {
		return f.With(ctx, func(other *sql.Conn) error {
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
