package sqlregistry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// locks holds, for each database, the statement with which a transaction locks the table against
// all other writers.
var locks = map[string]string{
	"Postgres": "LOCK TABLE tickslot_registry IN ACCESS EXCLUSIVE MODE",
	"pgx":      "LOCK TABLE tickslot_registry IN ACCESS EXCLUSIVE MODE",
	"MySQL":    "SELECT * FROM tickslot_registry FOR UPDATE",
	"SQLite":   "BEGIN IMMEDIATE",
}

// lock locks the table until unlock is called.
func (s subject) lock(t testing.TB, statement string) (unlock func()) {
	t.Helper()
	conn, err := s.db(t, "", "").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begin := []string{"BEGIN", statement}
	if strings.HasPrefix(statement, "BEGIN") {
		begin = begin[1:]
	}
	for _, statement := range begin {
		if err := execute(t.Context(), conn, statement); err != nil {
			t.Fatal(err)
		}
	}
	return sync.OnceFunc(func() {
		if err := execute(context.Background(), conn, "ROLLBACK"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
}

func execute(ctx context.Context, conn *sql.Conn, statement string) error {
	rows, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	return rows.Close()
}

// While another session has locked the table, a batch fails at its deadline and is not written
// later. The statement also ends in the server, so a table that is locked for an hour does not
// occupy all of the server's connections.
//
// Fails when a statement waits longer than its caller, for example on MariaDB without
// max_statement_time.
func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			store := s.migrated(t)
			if _, err := store.Write(t.Context(), batch("a")); err != nil {
				t.Fatal(err)
			}
			unlock := s.lock(t, locks[way])
			defer unlock()
			late := testkit.MeasureLateness(t, 10*time.Millisecond)
			for range 3 {
				began := time.Now()
				// Postgres drops a cancel request that arrives before the statement has begun. This
				// limit leaves a busy server enough time to begin it.
				const limit = time.Second
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err := store.Write(ctx, batch("a"))
				cancel()
				took := time.Since(began)
				if err == nil || took > limit+100*time.Millisecond+late.Since(began) {
					t.Errorf("%v after %v: must fail within %v", err, took, limit)
				}
				t.Log(err)
			}
			waiting := map[string]string{
				"Postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() " +
					"AND wait_event_type = 'Lock'",
				"MySQL": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() " +
					"AND info LIKE '%INSERT%' AND id <> CONNECTION_ID()",
			}[strings.Replace(way, "pgx", "Postgres", 1)]
			if waiting != "" {
				db := s.db(t, "", "")
				testkit.Eventually(t, 20*time.Second, "nobody waits for the lock", func(ctx context.Context) error {
					var n int
					if err := db.QueryRowContext(ctx, waiting).Scan(&n); err != nil || n == 0 {
						return err
					}
					return fmt.Errorf("%d statements wait", n)
				})
			}
			unlock()
			if failed := calls(t, store); len(failed) > 0 {
				t.Error(failed)
			}
		})
	}
}

// An age is measured from the start of the call, even if the call has to wait for a lock.
//
// Fails when the wait is not added on SQLite, where the statement begins only after it has the
// lock.
func TestWaitsAreNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sqliteFile(t)
		store := s.migrated(t)
		unlock := s.lock(t, locks["SQLite"])
		defer unlock()
		written := make(chan error, 1)
		go func() {
			_, err := store.Write(t.Context(), batch("a"))
			written <- err
		}()
		const wait = 2 * time.Second
		time.Sleep(wait) // the clock of the file is not that of the bubble
		unlock()
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		rows, err := store.Read(t.Context(), cluster.Query{Events: 1, Runs: 1})
		if err != nil {
			t.Fatal(err)
		}
		for what, ago := range map[string]time.Duration{"SeenAgo": rows.Hosts[0].SeenAgo, "Ago": rows.Events[0].Ago,
			"EndedAgo": rows.Runs[0].EndedAgo, "RenewedAgo": rows.Leases[0].RenewedAgo} {
			if ago < wait {
				t.Errorf("%s is %v: the call began %v before it was let in", what, ago, wait)
			}
		}
	})
}

// Ten hosts that write and sweep continuously do not disturb each other.
//
// Fails when a deadlock reaches the caller.
func TestHostsWriteAndSweepAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			s.migrated(t)
			rounds := 200
			var all sync.WaitGroup
			for host := range 10 {
				store := s.open(t)
				all.Go(func() {
					for i := range rounds {
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
						b := batch(fmt.Sprint(host))
						b.Host.UpFor += time.Duration(i) * time.Second
						for n := range 5 {
							b.Leases = append(b.Leases, b.Leases[0])
							b.Leases[n].Name = fmt.Sprint((host + n) % 7)
							b.Leases[n].ExpiresIn = -time.Hour
							b.Events = append(b.Events, b.Events[0])
							b.Events[n].ID = fmt.Sprint(host, i, n)
							b.Runs = append(b.Runs, b.Runs[0])
							b.Runs[n].ID = fmt.Sprint(host, i, n)
						}
						w, err := store.Write(ctx, b)
						if err != nil || w.HostUnknown {
							t.Errorf("Write: %+v, %v", w, err)
						}
						if _, err := store.Sweep(ctx, cluster.Retention{Hosts: time.Hour}, 10); err != nil {
							t.Errorf("Sweep: %v", err)
						}
						cancel()
					}
				})
			}
			all.Wait()
			rows, err := s.open(t).Read(t.Context(), cluster.Query{})
			if err != nil || len(rows.Hosts) != 10 {
				t.Errorf("%d hosts, want 10: %v", len(rows.Hosts), err)
			}
		})
	}
}

// A sweep keeps a row that is written while the sweep runs. Times are measured by the database.
//
// Fails when times are measured by this process's clock.
func TestTheDatabaseMeasuresTime(t *testing.T) {
	t.Parallel()
	for way, hour := range map[string]string{"Postgres": "interval '1 hour'", "MySQL": "INTERVAL 1 HOUR",
		"SQLite": "3600000000"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			store := s.migrated(t)
			began := time.Now()
			w, err := store.Write(t.Context(), batch("a"))
			if err != nil || w.At.Sub(began).Abs() > time.Minute {
				t.Errorf("%v: the database says that it is %v: %v", began, w.At, err)
			}
			s.exec(t, "UPDATE tickslot_registry SET renewed_at = renewed_at - "+hour+" WHERE sort = 'host'")
			rows, err := store.Read(t.Context(), cluster.Query{})
			if err != nil || len(rows.Hosts) != 1 || rows.Hosts[0].SeenAgo < time.Hour {
				t.Fatalf("%+v, %v: want one host, seen an hour ago", rows, err)
			}
			// As if the database's clock had been set back.
			s.exec(t, "UPDATE tickslot_registry SET renewed_at = renewed_at + "+hour+" + "+hour+" WHERE sort = 'host'")
			rows, err = store.Read(t.Context(), cluster.Query{})
			if err != nil || len(rows.Hosts) != 1 || rows.Hosts[0].SeenAgo != 0 {
				t.Fatalf("%+v, %v: want one host, seen just now", rows, err)
			}
			if _, err := store.Write(t.Context(), batch("a")); err != nil {
				t.Fatal(err)
			}
			s.exec(t, "UPDATE tickslot_registry SET renewed_at = renewed_at - "+hour+" WHERE sort = 'host'")
			if n, err := store.Sweep(t.Context(), cluster.Retention{Hosts: time.Minute, Leases: time.Hour,
				Events: time.Hour, Runs: time.Hour}, 10); n != 1 || err != nil {
				t.Errorf("%d rows were swept, %v: want the host", n, err)
			}
		})
	}
}

// A batch whose reply was lost can be written again.
func TestReplyIsLost(t *testing.T) {
	t.Parallel()
	for _, way := range databases[:2] {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			direct := s.migrated(t)
			proxy := s.server.NewCountingProxy(t)
			store := s.store(t, proxy.Addr(), "", sqlregistry.Options{})
			if _, err := store.Runs(t.Context(), ""); err != nil { // opens a connection
				t.Fatal(err)
			}
			proxy.LoseReplies(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := store.Write(ctx, batch("a")); err == nil {
				t.Error("no error although the reply was lost")
			}
			proxy.LoseReplies(false)
			if _, err := store.Write(t.Context(), batch("a")); err != nil {
				t.Error(err)
			}
			rows, err := direct.Read(t.Context(), cluster.Query{Events: 10, Runs: 10})
			if err != nil || len(rows.Hosts) != 1 || len(rows.Leases) != 1 || len(rows.Events) != 1 ||
				len(rows.Runs) != 1 {
				t.Errorf("%+v, %v: want one row of each sort", rows, err)
			}
		})
	}
}

// When the file is locked, Migrate returns an error that says so and that does not match ErrSchema.
// It can be called again.
//
// Fails when every error of Migrate counts as a faulty schema.
func TestMigrateOfALockedFile(t *testing.T) {
	t.Parallel()
	s := ways["SQLite"](t)
	store := s.open(t)
	unlock := s.lock(t, locks["SQLite"])
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := store.Migrate(ctx); err == nil || errors.Is(err, dlock.ErrSetup) {
		t.Errorf("%v, want an error that passes", err)
	} else if !strings.Contains(err.Error(), "had the database locked") &&
		!errors.Is(err, context.DeadlineExceeded) { // a busy machine may only notice the deadline
		t.Errorf("%v: must say what it was waiting for", err)
	}
	unlock()
	if err := store.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// On a slow disk, a call returns when its context ends, although its statement still runs. Rows
// that the statement reads later are dropped.
//
// Fails under the race detector when a call writes into a variable of a function that has returned.
func TestCallsThatEndBeforeTheirStatements(t *testing.T) {
	t.Parallel()
	s := sqliteFile(t)
	store := s.store(t, "", "", sqlregistry.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
		_, _ = store.Write(ctx, batch("a"))
		rows, err := store.Read(ctx, cluster.Query{Events: 10, Runs: 10})
		if err == nil && len(rows.Hosts) > 1 {
			t.Errorf("%d hosts", len(rows.Hosts))
		}
		cancel()
	}
}
