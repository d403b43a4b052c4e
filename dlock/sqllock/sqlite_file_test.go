package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
)

func oneOfTwo(name, token string) driver.Request {
	return driver.Request{Name: name, Slots: 2, Token: token, TTL: time.Minute}
}

func shortly(t testing.TB, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// A refusal is one statement, and every other call is one transaction, for any number of slots and
// leases.
func TestStatementsSQLite(t *testing.T) {
	brisk(t)
	t.Parallel()
	h := &hook{}
	store := sqllock.SQLite(h.open(t, sqliteDSN(sqlitePath(t))), sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	is := func(what string, want []string, call func()) {
		t.Helper()
		if got := h.statements(call); err != nil && !errors.Is(err, driver.ErrNotAcquired) || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q; %v", what, got, want, err)
		}
	}
	const slots = 300
	tick := &driver.Tick{At: time.Now(), Max: 2 * slots}
	var grants []driver.Grant
	acquire := func(token string) func() {
		return func() {
			var g driver.Grant
			g, err = store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: slots, Token: token, TTL: time.Hour,
				Tick: tick})
			grants = append(grants, g)
		}
	}
	taken := []string{"SELECT", "PRAGMA busy_timeout", "BEGIN IMMEDIATE", "SELECT", "INSERT", "INSERT", "COMMIT"}
	is("acquire", taken, acquire("t0"))
	is("acquire again", []string{"SELECT", "PRAGMA busy_timeout", "BEGIN IMMEDIATE", "SELECT", "UPDATE", "COMMIT"},
		acquire("t0"))
	for i := 1; i < slots; i++ {
		is("acquire", taken, acquire(fmt.Sprint("t", i)))
	}
	grants = grants[1:]
	is("full", []string{"SELECT"}, acquire("u"))
	grants = grants[:slots]
	is("list", []string{"SELECT"}, func() { _, err = store.List(t.Context(), "a", slots) })
	is("enumerate", []string{"WITH"}, func() { _, err = store.Enumerate(t.Context(), "", driver.MaxPage) })
	each := []string{"PRAGMA busy_timeout", "BEGIN IMMEDIATE", "UPDATE", "COMMIT"}
	is("extend", each, func() { _, err = store.Extend(t.Context(), time.Hour, grants...) })
	is("release", each, func() { _, err = store.Release(t.Context(), grants...) })
	tick = nil
	is("acquire without a tick", []string{"SELECT", "PRAGMA busy_timeout", "BEGIN IMMEDIATE", "SELECT", "INSERT",
		"COMMIT"}, acquire("v"))
}

// If the disk hangs, for example in a checkpoint, only the call in progress is delayed, and only
// until its deadline. If the call made a grant, its token finds it.
//
// Fails when calls run on the caller's goroutine (late), and when the wait for the turn has no
// limit (the second call fails).
func TestI7DiskHangsSQLite(t *testing.T) {
	t.Parallel()
	h := &hook{}
	store := sqllock.SQLite(h.open(t, sqliteDSN(sqlitePath(t))), sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	hangs, mended := make(chan struct{}), make(chan struct{})
	first := true
	h.set(nil, func(statement string) {
		if statement == "COMMIT" && first {
			first = false
			close(hangs)
			<-mended
		}
	})
	t.Cleanup(func() { close(mended) })
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := store.TryAcquire(ctx, oneOfTwo("a", "t"))
		answered <- err
	}()
	<-hangs
	cancel()
	select {
	case err := <-answered:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("acquire: %v: must be cancelled", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("acquire is not back 5s after its context ended")
	}
	g, err := store.TryAcquire(t.Context(), oneOfTwo("a", "t"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %v, %v", r, err)
	}
}

// A call that fails halfway has no effect: it takes no slot and no start of a tick, and leaves no
// transaction open.
//
// Fails when an error does not roll back: the next call finds an open transaction.
func TestHalfWaySQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	s := sqliteOn(path).migrated(t)
	h := &hook{}
	db := h.open(t, sqliteDSN(path))
	db.SetMaxOpenConns(1)
	store := sqllock.SQLite(db, sqllock.Options{})
	tick := &driver.Tick{At: time.Now(), Max: 1}
	for what, fault := range map[string]func(cancel func()) (before func(statement string)){
		"a trigger": func(func()) func(string) {
			s.exec(t, "CREATE TRIGGER fault BEFORE INSERT ON distributed_locks WHEN NEW.slot = -1 BEGIN SELECT "+
				"RAISE(ABORT, 'no'); END")
			return nil
		},
		"a panic": func(func()) func(string) {
			return func(statement string) {
				if statement == "COMMIT" {
					panic("out of order")
				}
			}
		},
		"a context that ends": func(cancel func()) func(string) {
			return func(statement string) {
				if statement == "INSERT" {
					cancel()
				}
			}
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		h.set(fault(cancel), nil)
		if _, err := store.TryAcquire(ctx, driver.Request{Name: what, Slots: 1, Token: "t", TTL: time.Minute,
			Tick: tick}); err == nil || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: %v: must be an error of the store", what, err)
		}
		cancel()
		h.set(nil, nil)
		s.exec(t, "DROP TRIGGER IF EXISTS fault")
		if _, err := store.TryAcquire(t.Context(), driver.Request{Name: what, Slots: 1, Token: "u", TTL: time.Minute,
			Tick: tick}); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
}

// In other journal modes, a commit waits for readers. It waits no longer than its caller and is
// then undone.
//
// Fails when a commit that found the file locked is not undone.
func TestReadersInTheWaySQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	s := sqliteOn(path)
	h := &hook{}
	store := sqllock.SQLite(h.open(t, sqliteDSN(path)), sqllock.Options{})
	list, err := store.Schema()
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, strings.Join(list, ";\n")) // without Migrate's additional settings
	reader, err := openSQLite(t, sqliteDSN(path)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.ExecContext(t.Context(), "BEGIN; SELECT count(*) FROM distributed_locks"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	undone := make(chan struct{})
	commits := 0
	h.set(nil, func(statement string) {
		switch statement {
		case "COMMIT":
			if commits++; commits == 10 {
				cancel()
			}
		case "ROLLBACK":
			close(undone)
		}
	})
	if _, err := store.TryAcquire(ctx, oneOfTwo("a", "t")); err == nil || errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("acquire: %v: must be an error of the store", err)
	}
	select {
	case <-undone:
	case <-time.After(10 * time.Second):
		t.Fatal("the transaction is still open")
	}
	h.set(nil, nil)
	if _, err := reader.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if held, err := store.List(t.Context(), "a", 2); err != nil || len(held) != 0 {
		t.Errorf("list: %v, %v", held, err)
	}
	everything(t, store)
}

// A connection with an open transaction is not used, because its rollback would undo a grant.
//
// Fails when statements run outside a separate transaction.
func TestSomebodysTransactionSQLite(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, sqliteDSN(sqlitePath(t)))
	db.SetMaxOpenConns(1)
	store := sqllock.SQLite(db, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("BEGIN; CREATE TABLE somebodys (x INTEGER)"); err != nil {
		t.Fatal(err)
	}
	_, err := store.TryAcquire(t.Context(), oneOfTwo("a", "t"))
	if err == nil || !strings.Contains(err.Error(), "a *sql.DB of its own") {
		t.Errorf("acquire: %v", err)
	}
	if _, err := db.Exec("INSERT INTO somebodys VALUES (1); COMMIT"); err != nil {
		t.Errorf("somebody's transaction: %v", err)
	}
	everything(t, store)
}

// A shared pool keeps its busy_timeout.
//
// Fails when the store does not restore it.
func TestBusyTimeoutIsPutBackSQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	db := openSQLite(t, sqliteDSN(path)+"&_pragma=busy_timeout(4321)")
	db.SetMaxOpenConns(1)
	store := sqllock.SQLite(db, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	everything(t, store)
	other := openSQLite(t, sqliteDSN(path))
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.TryAcquire(shortly(t, 50*time.Millisecond), oneOfTwo("a", "t")); err == nil {
		t.Error("granted while the file is locked")
	}
	if out := strings.TrimSpace(execSQLite(t, db, "PRAGMA busy_timeout")); out != "4321" {
		t.Errorf("busy_timeout is %s", out)
	}
}

// If the file of a process is deleted, replaced or moved, the process switches to the file that
// others open and loses its leases. Otherwise there would be two separate fleets.
//
// Fails when moved returns false: the old host keeps its lease.
func TestFileReplacedSQLite(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(path string) error{
		"deleted": func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		},
		"moved": func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Rename(path+"-wal", path+"2-wal"),
				os.Rename(path+"-shm", path+"2-shm"))
		},
	} {
		path := sqlitePath(t)
		s := sqliteOn(path).migrated(t)
		old := s.open(t, sqllock.Options{})
		g, err := old.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := replace(path); err != nil {
			t.Fatal(err)
		}
		if _, err := old.Extend(t.Context(), time.Minute, g); !errors.Is(err, driver.ErrSetup) ||
			!strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("%s: extend: %v: must say that the table is missing", what, err)
		}
		s.migrated(t)
		next, err := s.open(t, sqllock.Options{}).TryAcquire(t.Context(),
			driver.Request{Name: "a", Token: "u", TTL: time.Minute})
		if err != nil || next.Fence <= g.Fence {
			t.Errorf("%s: acquire: fence %d after %d, %v", what, next.Fence, g.Fence, err)
		}
		if r, err := old.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantLost {
			t.Errorf("%s: extend: %v, %v: must be lost", what, r, err)
		}
		everything(t, old)
	}
}
