package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A directSession is another session that accesses the table directly.
type directSession struct {
	t    *testing.T
	dsn  string
	conn *sql.Conn
}

func newDirectSession(t *testing.T, dsn string) directSession {
	t.Helper()
	conn, err := openMySQL(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return directSession{t, dsn, conn}
}

func (s directSession) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := s.conn.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// newLockScene creates a table in a new database, and a session that accesses the table directly.
func newLockScene(t *testing.T, params string) (*sqllock.Store, directSession, *sqltest.Server) {
	t.Helper()
	server := sqltest.SharedMariaDB(t)
	dsn := server.DSN("", "", server.NewDatabase(t))
	store := viaMySQL(dsn+params)(t, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store, newDirectSession(t, dsn), server
}

// request returns a request for a lock or slot. Its token is its name.
func request(name string, slots int) driver.Request {
	return driver.Request{Name: name, Slots: slots, Token: strings.ReplaceAll(name, ":", ""), TTL: time.Minute}
}

// callWithTimeout makes a call with a timeout and returns how long it took.
func callWithTimeout(d time.Duration, call func(context.Context) error) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	began := time.Now()
	err = call(ctx)
	return time.Since(began), err
}

// Whatever other sessions lock, a call ends with its context, its thread in the server ends soon
// after, and a cancelled caller gets no grant. If a row is locked, an acquire or extend ends
// earlier with an error that says so.
//
// Fails when the timeouts of the session are not set (threads wait for 50 s), or when a slot is
// taken for a cancelled caller.
func TestI7LocksOfOthersMySQL(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string][]string{
		"name": {"START TRANSACTION", "SELECT * FROM distributed_locks WHERE resource_name IN ('free', " +
			"'free:slot:') AND slot = -1 FOR UPDATE"},
		"slot": {"START TRANSACTION", "SELECT * FROM distributed_locks WHERE resource_name IN ('free', " +
			"'held:slot:') AND slot = 0 FOR UPDATE"},
		"table": {"LOCK TABLES distributed_locks WRITE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, other, server := newLockScene(t, oneTrip)
			watcher, database := openMySQL(t, server.DSN("", "", "")), other.database()
			held, err := store.TryAcquire(t.Context(), request("held", 2))
			if err != nil {
				t.Fatal(err)
			}
			free, err := store.TryAcquire(t.Context(), request("free", 0))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Release(t.Context(), free); err != nil {
				t.Fatal(err)
			}
			if err := store.Update(t.Context(), "free", driver.Update{Trigger: &ann}); err != nil {
				t.Fatal(err)
			}
			other.exec(lock...)
			calls := map[string]func(context.Context) error{
				"acquire": func(ctx context.Context) error {
					_, err := store.TryAcquire(ctx, request("free", 0))
					return err
				},
				"extend": func(ctx context.Context) error {
					r, err := store.Extend(ctx, time.Minute, held)
					if err == nil {
						err = r[0].Err
					}
					return err
				},
				"release": func(ctx context.Context) error {
					_, err := store.Release(ctx, driver.Grant{Name: "held", Slots: 2, Token: "nobodys"})
					return err
				},
				"update": func(ctx context.Context) error {
					return store.Update(ctx, "free", driver.Update{Trigger: &ann})
				},
				"revoke": func(ctx context.Context) error {
					return store.Revoke(ctx, "held", held.Slot, held.Fence, ann)
				},
			}
			switch name {
			case "name": // held leases do not need this row
				delete(calls, "extend")
				delete(calls, "release")
				delete(calls, "revoke")
			case "slot": // neither updates nor other leases need this row
				delete(calls, "update")
				delete(calls, "release")
			}
			for what, call := range calls {
				skips := name != "table" && (what == "acquire" || what == "extend")
				told := false
				// A busy machine may not learn of the row in time.
				for tries := 0; tries == 0 || skips && !told && tries < 3; tries++ {
					// The last tenth is for the transfer of the server's answer.
					took, err := callWithTimeout(800*time.Millisecond<<tries, call)
					if err == nil || errors.Is(err, driver.ErrNotAcquired) || took < 100*time.Millisecond ||
						took > 5*time.Second {
						t.Errorf("%s: %v after %v", what, err, took)
					}
					told = told || errors.Is(err, driver.ErrFault)
				}
				if skips != told {
					t.Errorf("%s: told of a row that is locked: %t", what, told)
				}
			}
			waiting := func() (n int) {
				t.Helper()
				err := watcher.QueryRowContext(t.Context(),
					"SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND command <> 'Sleep'",
					database).Scan(&n)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if name == "table" { // otherwise the test shows nothing
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = callWithTimeout(3*time.Second, calls["acquire"])
				}()
				testkit.Eventually(t, testkit.Patience, "a call waits in the server",
					func() bool { return waiting() > 0 })
				<-ended
			}
			gone := time.Now()
			_ = testkit.Poll(10*time.Second, "no thread waits", func() bool { return waiting() == 0 })
			if left := time.Since(gone); left > 2500*time.Millisecond {
				t.Errorf("threads of the server waited for %v more", left)
			}
			// This call gets the lock only after its caller was cancelled.
			if _, err := callWithTimeout(200*time.Millisecond, calls["acquire"]); !errors.Is(err,
				context.DeadlineExceeded) &&
				!errors.Is(err, driver.ErrFault) {
				t.Error(err)
			}
			time.Sleep(200 * time.Millisecond) // it is still waiting
			other.exec("ROLLBACK", "UNLOCK TABLES")
			testkit.Eventually(t, testkit.Patience, "it ends by itself", func() bool { return waiting() == 0 })
			late := request("free", 0)
			late.Token = "another"
			if _, err := store.TryAcquire(t.Context(), late); err != nil {
				t.Errorf("after the lock is gone: %v", err)
			}
		})
	}
}

func (s directSession) database() (name string) {
	s.t.Helper()
	if err := s.conn.QueryRowContext(s.t.Context(), "SELECT DATABASE()").Scan(&name); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// A caller without a deadline gets an error after five seconds. The error says what to look for.
//
// Fails when error 1205 is not recognized.
func TestLockWaitTellsWhyMySQL(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	store, other, _ := newLockScene(t, oneTrip)
	g, err := store.TryAcquire(t.Context(), request("a", 0))
	if err != nil {
		t.Fatal(err)
	}
	other.exec("START TRANSACTION", "SELECT * FROM distributed_locks FOR UPDATE")
	began := time.Now()
	err = store.Revoke(context.Background(), "a", g.Slot, g.Fence, ann)
	if errors.Is(err, driver.ErrNotHeld) { // the name is a mutex
		err = store.Update(context.Background(), "b", driver.Update{Trigger: &ann})
	}
	if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "left open") {
		t.Errorf("%v: must say what to look for", err)
	}
	if took := time.Since(began); took < 4*time.Second || took > 10*time.Second {
		t.Errorf("after %v", took)
	}
}

// After a deadlock with another session's transaction, the procedure retries. Extensions and
// releases never wait for a lock while they hold one, so they cause no deadlocks.
//
// Fails when error 1213 is not caught.
func TestDeadlocksAreRepeatedMySQL(t *testing.T) {
	t.Parallel()
	store, other, _ := newLockScene(t, oneTrip)
	acquire := func(ctx context.Context, token string) (driver.Grant, error) {
		req := request("a", 2)
		req.Token = token
		return store.TryAcquire(ctx, req)
	}
	first, err := acquire(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := acquire(t.Context(), "second")
	if err != nil {
		t.Fatal(err)
	}
	// The direct session has more changes, so the other session is the victim.
	other.exec("CREATE TABLE heavy (x INT) ENGINE=InnoDB",
		"INSERT INTO heavy SELECT 1 FROM information_schema.collations")
	deadlock := func(what, one, two string, call func(context.Context) error) {
		t.Helper()
		other.exec("START TRANSACTION", "UPDATE heavy SET x = x + 1",
			"SELECT * FROM distributed_locks WHERE resource_name = 'a:slot:' AND slot "+one+" FOR UPDATE")
		done := make(chan error)
		go func() {
			_, err := callWithTimeout(10*time.Second, call)
			done <- err
		}()
		time.Sleep(300 * time.Millisecond) // until it has its first lock and waits for the second
		other.exec("SELECT * FROM distributed_locks WHERE resource_name = 'a:slot:' AND slot "+two+" FOR UPDATE",
			"COMMIT")
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	deadlock("extend", "= 1", "= 0", func(ctx context.Context) error {
		r, err := store.Extend(ctx, time.Minute, second, first) // the rows are not locked in the caller's order
		if err == nil && (r[0].Outcome != driver.GrantOK || r[1].Outcome != driver.GrantOK) {
			err = fmt.Errorf("%v", r)
		}
		return err
	})
	deadlock("release", "= 1", "= 0", func(ctx context.Context) error {
		r, err := store.Release(ctx, second, first)
		if err == nil && (r[0].Outcome != driver.GrantOK || r[1].Outcome != driver.GrantOK) {
			err = fmt.Errorf("%v", r)
		}
		return err
	})
	other.exec("DELETE FROM distributed_locks WHERE slot > 0")
	if _, err := acquire(t.Context(), "third"); err != nil {
		t.Fatal(err)
	}
	before := deadlocks(other)
	deadlock("acquire", "> 0", "= -1", func(ctx context.Context) error { // a gap, which cannot be skipped
		g, err := acquire(ctx, "fourth")
		if err == nil && g.Slot != 1 {
			err = fmt.Errorf("slot %d", g.Slot)
		}
		return err
	})
	if n := deadlocks(other) - before; n < 1 {
		t.Errorf("%d deadlocks: the test shows nothing", n)
	}
}

// deadlocks returns the server's number of deadlocks, which includes those of other tests.
func deadlocks(s directSession) (n int) {
	s.t.Helper()
	if err := s.conn.QueryRowContext(s.t.Context(),
		"SELECT COUNT FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// A procedure that keeps restarting gives up when its caller does.
//
// Fails when a loop ends only with success: threads of the server would run forever.
func TestRepetitionsEndMySQL(t *testing.T) {
	t.Parallel()
	store, other, server := newLockScene(t, oneTrip)
	g, err := store.TryAcquire(t.Context(), request("a", 2))
	if err != nil {
		t.Fatal(err)
	}
	other.exec("CREATE TRIGGER twice BEFORE INSERT ON distributed_locks FOR EACH ROW SIGNAL SQLSTATE '23000' SET "+
		"MYSQL_ERRNO = 1062",
		"CREATE TRIGGER dead BEFORE UPDATE ON distributed_locks FOR EACH ROW SIGNAL SQLSTATE '40001' SET "+
			"MYSQL_ERRNO = 1213")
	late := testkit.MeasureLateness(t, 10*time.Millisecond)
	repeats := func(what string, call func(context.Context) error) {
		t.Helper()
		began := time.Now()
		if took, err := callWithTimeout(300*time.Millisecond, call); err == nil || errors.Is(err,
			driver.ErrNotAcquired) ||
			took < 250*time.Millisecond || took > time.Second+late.Since(began) {
			t.Errorf("%s: %v after %v", what, err, took)
		}
	}
	for what, call := range map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := store.TryAcquire(ctx, request("b", 0)); return err },
		"extend":  func(ctx context.Context) error { _, err := store.Extend(ctx, time.Minute, g); return err },
		"release": func(ctx context.Context) error { _, err := store.Release(ctx, g); return err },
		"revoke":  func(ctx context.Context) error { return store.Revoke(ctx, "a", g.Slot, g.Fence, ann) },
	} {
		repeats(what, call)
	}
	other.exec("DROP TRIGGER twice") // an update inserts the row only if it is missing
	repeats("update", func(ctx context.Context) error { return store.Update(ctx, "a", driver.Update{Trigger: &ann}) })
	watcher, database := openMySQL(t, server.DSN("", "", "")), other.database()
	testkit.Eventually(t, 3*time.Second, "no thread of the server goes on", func() bool {
		var running int
		err := watcher.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND command <> 'Sleep'",
			database).Scan(&running)
		if err != nil {
			t.Fatal(err)
		}
		return running == 0
	})
}

// If a lease is extended while another session takes its slot, the holder keeps it.
//
// Fails when the row is not read again, or when a snapshot older than the row counts.
func TestI1ExtendedAtTheLastMomentMySQL(t *testing.T) {
	t.Parallel()
	for way, params := range map[string]string{"snapshot": oneTrip, "found rows": oneTrip + "&clientFoundRows=true"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			store, other, _ := newLockScene(t, params)
			for _, slots := range []int{0, 1} {
				req := request("a", slots)
				g, err := store.TryAcquire(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				// This selects exactly one row.
				row := fmt.Sprintf(" WHERE resource_name = '%s' AND slot = 0", []string{"a", "a:slot:"}[slots])
				other.exec("UPDATE distributed_locks SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"+row,
					"START TRANSACTION", "UPDATE distributed_locks SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 "+
						"MINUTE"+row)
				done := make(chan error)
				go func() {
					next := req
					next.Token = "next"
					_, err := store.TryAcquire(context.Background(), next)
					done <- err
				}()
				time.Sleep(200 * time.Millisecond) // until it waits for the row
				other.exec("COMMIT")
				if err := <-done; !errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("%v: must be refused", err)
				}
				if r, err := store.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
					t.Errorf("the holder: %v, %v", r, err)
				}
			}
		})
	}
}
