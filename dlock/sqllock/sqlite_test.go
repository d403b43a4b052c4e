package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// sqliteDSN returns a DSN that opens a file as the comment of sqllock.SQLite advises.
func sqliteDSN(path string) string { return "file:" + path + "?_pragma=synchronous(normal)" }

// openSQLite returns a pool of four connections, or of one for an in-memory database.
func openSQLite(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	if dsn == ":memory:" {
		db.SetMaxOpenConns(1)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// sqliteWays are the ways to connect to a SQLite database.
var sqliteWays = map[string]func(t testing.TB) subject{
	"file":   func(t testing.TB) subject { return sqliteOn(sqlitePath(t)) },
	"memory": func(t testing.TB) subject { return sqliteShared(openSQLite(t, ":memory:")) },
	"shared memory": func(t testing.TB) subject {
		return sqliteShared(openSQLite(t, "file:"+sqltest.Unique("m")+"?mode=memory&cache=shared"))
	},
}

// sqlitePath returns the path of a file that does not exist yet.
func sqlitePath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "locks.db")
}

// sqliteOn returns a subject on a file, which each host opens separately.
func sqliteOn(path string) subject {
	return subject{
		table: "distributed_locks", span: "%d",
		open: func(t testing.TB, opts sqllock.Options) *sqllock.Store {
			return sqllock.SQLite(openSQLite(t, sqliteDSN(path)), opts)
		},
		exec: func(t testing.TB, statements string) string {
			t.Helper()
			return execSQLite(t, openSQLite(t, sqliteDSN(path)+"&_pragma=busy_timeout(10000)"), statements)
		},
	}
}

// sqliteShared returns a subject with one pool for all hosts.
func sqliteShared(db *sql.DB) subject {
	return subject{
		table: "distributed_locks", span: "%d",
		open: func(t testing.TB, opts sqllock.Options) *sqllock.Store { return sqllock.SQLite(db, opts) },
		exec: func(t testing.TB, statements string) string { t.Helper(); return execSQLite(t, db, statements) },
	}
}

// execSQLite executes statements and returns the output of the last one, one line per row.
func execSQLite(t testing.TB, db *sql.DB, statements string) string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), statements)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			fmt.Fprint(&out, *v.(*any), " ")
		}
		out.WriteString("\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// brisk skips a test with thousands of calls if SQLite is slow. The race detector makes it twenty
// times slower, because it is C code translated to Go.
func brisk(t testing.TB) {
	t.Helper()
	spared := false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			spared = spared || s.Key == "-gcflags" && strings.Contains(s.Value, "modernc.org/...=-race=false")
		}
	}
	if testkit.RaceDetector && !spared {
		servertest.Require(t, errors.New("a SQLite that is not slowed down by the race detector"),
			"test with sh scripts/test.sh, or -gcflags=modernc.org/...=-race=false")
	}
}

func TestConformanceSQLite(t *testing.T) {
	t.Parallel()
	brisk(t)
	for way, open := range sqliteWays {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if way != "file" {
				testkit.Long(t)
			}
			conform(t, open(t).migrated(t))
		})
	}
}

// Fails when the transaction does not read the snapshot again.
func TestContentionSQLite(t *testing.T) {
	testkit.SkipShort(t)
	brisk(t)
	t.Parallel()
	for _, c := range contentions {
		crowd.Contend(t, sqliteOn(sqlitePath(t)).migrated(t).hosts(t), c.slots, c.workers,
			c.attempts/2*testkit.Rounds(t, 1, 8))
	}
}

// Timers on several hosts keep I1 to I12. For the outages of I7, another process keeps the file
// locked.
func TestTimersSQLite(t *testing.T) {
	testkit.SkipShort(t)
	testkit.Long(t) // make test runs these tests on Postgres and Redis
	brisk(t)
	t.Parallel()
	timertest.Run(t, timertest.Harness{
		TTL:    5 * time.Second, // all hosts and the database are in this process
		Period: timersPeriod,
		New: func(t testing.TB) timertest.Store {
			path := sqlitePath(t)
			s := sqliteOn(path).migrated(t)
			// In another process, this would be the same lock.
			other := openSQLite(t, sqliteDSN(path)+"&_pragma=busy_timeout(10000)")
			other.SetMaxOpenConns(1)
			exec := func(statement string) {
				if _, err := other.Exec(statement); err != nil {
					t.Error(err)
				}
			}
			down := false
			return timertest.Store{
				Open: func(t testing.TB) driver.Store { return s.open(t, sqllock.Options{}) },
				Down: func() { exec("BEGIN IMMEDIATE"); down = true },
				Up: func() {
					if down {
						exec("ROLLBACK")
					}
					down = false
				},
			}
		},
		Misconfigured: func(t testing.TB) (driver.Store, []string) {
			return sqllock.SQLite(nil, sqllock.Options{Prefix: "a\nb"}), []string{`Prefix "a\nb"`, "no *sql.DB"}
		},
	})
}

// Slots whose rows were deleted by hand are granted again. With up to 64 slots, the next attempt
// finds them; with more, a later one does.
//
// Fails when a slot without a row counts as held.
func TestDeletedRowsSQLite(t *testing.T) {
	brisk(t)
	t.Parallel()
	s := sqliteOn(sqlitePath(t)).migrated(t)
	store := s.open(t, sqllock.Options{})
	for _, c := range []struct {
		n    int
		gone []int
	}{{1, []int{0}}, {64, []int{0}}, {64, []int{3, 11}}, {64, []int{63}}, {64, []int{0, 1, 62}},
		{200, []int{63, 64, 199}}} {
		n, gone := c.n, c.gone
		name := fmt.Sprint(n, " without ", gone)
		acquire := func(token string) (driver.Grant, error) {
			return store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: n, Token: token, TTL: time.Hour})
		}
		for i := range n {
			if _, err := acquire("t" + strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, slot := range gone {
			s.exec(t, fmt.Sprintf("DELETE FROM distributed_locks WHERE resource_name = '%s:slot:' AND slot = %d", name,
				slot))
		}
		found := map[int]bool{}
		tries := len(gone)
		if n > 64 {
			tries = 1000 // each try checks one of four windows; the probability that all miss is 1e-120
		}
		for i := 0; i < tries && len(found) < len(gone); i++ {
			g, err := acquire("u" + strconv.Itoa(i))
			if err == nil {
				found[g.Slot] = true
			} else if !errors.Is(err, driver.ErrNotAcquired) {
				t.Fatal(err)
			}
		}
		for _, slot := range gone {
			if !found[slot] {
				t.Errorf("N=%d, without rows %v: found %v", n, gone, found)
			}
		}
		if _, err := acquire("last"); !errors.Is(err, driver.ErrNotAcquired) || len(found) != len(gone) {
			t.Errorf("N=%d, without rows %v: found %v, and then: %v", n, gone, found, err)
		}
	}
}

// A refusal takes no lock, so it works while another connection writes.
//
// Fails when an acquire does not first read without a lock.
func TestRefusalTakesNoLockSQLite(t *testing.T) {
	t.Parallel()
	s := sqliteOn(sqlitePath(t)).migrated(t)
	store := s.open(t, sqllock.Options{})
	late := time.Now().Add(-time.Minute)
	if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute,
		Tick: &driver.Tick{At: late, Max: 1}}); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "BEGIN IMMEDIATE") // the connection holds the lock until the test ends
	for reason, tick := range map[driver.Reason]*driver.Tick{
		driver.ReasonFull:      nil,
		driver.ReasonTickTaken: {At: late, Max: 1},
		driver.ReasonTickLate:  {At: late.Add(-time.Second), Max: 1},
		driver.ReasonTickAhead: {At: late.Add(time.Hour), Max: 1},
	} {
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "u", TTL: time.Minute,
			Tick: tick})
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != reason {
			t.Errorf("%v: must be refused with %s", err, reason)
		}
	}
	if held, err := store.List(t.Context(), "a", 1); err != nil || len(held) != 1 {
		t.Errorf("list: %v, %v", held, err)
	}
}

// A lease is never shorter than its TTL, although SQLite's clock shows only milliseconds.
//
// Fails when the TTL is not rounded up, and when a lease ends as soon as the clock shows its end.
func TestNotAMillisecondEarlySQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	store := sqliteOn(path).migrated(t).open(t, sqllock.Options{})
	db := openSQLite(t, sqliteDSN(path))
	for i := range 20 {
		name, ttl := fmt.Sprint("a", i), 10*time.Millisecond+time.Duration(i)*50*time.Microsecond
		var began [2]int64
		for j := range began {
			for { // as often as possible
				_, err := store.TryAcquire(t.Context(), driver.Request{Name: name, Token: fmt.Sprint("t", j), TTL: ttl})
				if err == nil {
					break
				}
				if !errors.Is(err, driver.ErrNotAcquired) {
					t.Fatal(err)
				}
			}
			if err := db.QueryRow("SELECT acquired_at FROM distributed_locks WHERE resource_name = ? AND slot = 0",
				name).Scan(&began[j]); err != nil {
				t.Fatal(err)
			}
		}
		if least := time.Duration(began[1]-began[0])*time.Microsecond - time.Millisecond; least < ttl {
			t.Errorf("a lease of %v may have ended after %v", ttl, least)
		}
	}
}
