package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// endedLocks is how many locks in the table ended long ago, and pageRows is how many rows a page
// has.
const endedLocks, pageRows = 5_000, 50

// middle is the Next of a page in the middle of the table.
const middle = "0 lock02500"

// pageOfNothing reads a page in the middle of a table in which all leases have ended.
func pageOfNothing(t *testing.T, what string, store *sqllock.Store) {
	t.Helper()
	p, err := store.Enumerate(t.Context(), middle, pageRows)
	if err != nil || len(p.Leases) != 0 || !strings.HasPrefix(p.Next, "0 lock025") {
		t.Fatalf("%s: %+v, %v: must have no lease, and a page after it", what, p, err)
	}
}

// onTx executes a store's statements in one transaction.
type onTx struct{ tx pgx.Tx }

func (o onTx) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return o.tx.QueryRow(ctx, query, args...).Scan(dest...)
}

func (o onTx) QueryRowAlone(context.Context, string, []any, ...any) error {
	return errors.ErrUnsupported
}

func (o onTx) WithDB(func(*sql.DB) error) error { return errors.ErrUnsupported }

func (o onTx) Close() error { return nil }

// A page reads at most its number of rows from the table, however many locks ended long ago and
// whatever statistics the planner has.
//
// Fails when a page is not a range of the primary key, or when the prefix is part of its range.
func TestEnumerateReadsOnePagePostgres(t *testing.T) {
	t.Parallel()
	_, pool := postgresWithPool(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	read := func(what string) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		count := func() (scans, rows int) { // for this session, which has not reported its statistics yet
			if err := tx.QueryRow(t.Context(), "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables "+
				"WHERE relname = 'distributed_locks'").Scan(&scans, &rows); err != nil {
				t.Fatal(err)
			}
			return scans, rows
		}
		scans, rows := count()
		pageOfNothing(t, what, sqllock.PostgresOn(onTx{tx}, sqllock.Options{}))
		if s, r := count(); s != scans || r-rows != pageRows {
			t.Errorf("%s: %d scans of the table, and %d rows by an index: must be 0 and %d", what, s-scans, r-rows,
				pageRows)
		}
	}
	exec("ALTER TABLE distributed_locks SET (autovacuum_enabled = off)")
	exec("ANALYZE distributed_locks")
	exec(fmt.Sprintf("INSERT INTO distributed_locks (resource_name, slot, fence, acquired_at, released_at) "+
		"SELECT 'lock' || to_char(i, 'FM00000'), 0, 1, '1980-01-01', '1980-01-01' "+
		"FROM generate_series(1, %d) AS i", endedLocks))
	read("statistics of an empty table")
	exec("ANALYZE distributed_locks")
	read("new statistics")
	exec("CREATE INDEX ON distributed_locks (released_at); CREATE INDEX ON distributed_locks (slot, resource_name)")
	read("further indexes")
	exec("DELETE FROM distributed_locks WHERE resource_name > 'lock02600' OR resource_name < 'lock02400'")
	exec("VACUUM distributed_locks")
	read("statistics of a large table that is small")
}

// Fails when a page is not a range of the primary key.
func TestEnumerateReadsOnePageMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := sqltest.SharedMariaDB(t)
	for way, params := range map[string]string{"one trip": oneTrip, "prepared": ""} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db := openMySQL(t, server.DSN("", "", server.NewDatabase(t))+params)
			db.SetMaxOpenConns(1) // the server counts the rows that a session has read
			store := sqllock.MySQL(db, sqllock.Options{})
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			exec := func(statement string) {
				t.Helper()
				rows, err := db.QueryContext(t.Context(), statement)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				for rows.Next() {
				}
			}
			count := func(name string) (n int) {
				t.Helper()
				if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE '"+name+"'").Scan(new(string),
					&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			const ofStatus = 10 // SHOW STATUS itself reads rows
			most := map[string]int{"Handler_read_first": 0, "Handler_read_last": 0, "Handler_read_key": 3,
				"Handler_read_next": pageRows, "Handler_read_prev": 0, "Handler_read_rnd_next": ofStatus}
			read := func(what string) {
				t.Helper()
				pageOfNothing(t, what, store) // makes the server load its data about the table
				before := map[string]int{}
				for name := range most {
					before[name] = count(name)
				}
				pageOfNothing(t, what, store)
				for name, n := range most {
					if got := count(name) - before[name]; got > n {
						t.Errorf("%s: %s is %d, want at most %d", what, name, got, n)
					}
				}
			}
			exec("ALTER TABLE distributed_locks STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0")
			exec("ANALYZE TABLE distributed_locks")
			exec(fmt.Sprintf("INSERT INTO distributed_locks (resource_name, slot, fence, acquired_at, expires_at, "+
				"released_at) SELECT CONCAT('lock', LPAD(w.i, 5, '0')), 0, 1, '1980-01-01', '1970-01-01', "+
				"'1980-01-01' FROM (SELECT ROW_NUMBER() OVER () AS i FROM information_schema.COLUMNS AS a, "+
				"information_schema.COLLATIONS AS b LIMIT %d) AS w", endedLocks))
			read("statistics of an empty table")
			exec("ANALYZE TABLE distributed_locks")
			read("new statistics")
			exec("ALTER TABLE distributed_locks ADD KEY (released_at), ADD KEY (slot, resource_name)")
			read("further indexes")
			exec("DELETE FROM distributed_locks WHERE resource_name > 'lock02600' OR resource_name < 'lock02400'")
			read("statistics of a large table that is small")
		})
	}
}

// Fails when a page is not a range of the primary key.
func TestEnumerateReadsOnePageSQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	s := sqliteOn(path).migrated(t)
	h := &hook{}
	db := h.open(t, sqliteDSN(path))
	store := sqllock.SQLite(db, sqllock.Options{})
	plan := func(what string) {
		t.Helper()
		pageOfNothing(t, what, store)
		args := make([]any, strings.Count(h.text, "?"))
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+h.text, args...)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var found []string
		for rows.Next() {
			var step string
			if err := rows.Scan(new(int), new(int), new(int), &step); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(step, "distributed_locks") {
				found = append(found, step)
			}
		}
		const want = "distributed_locks USING PRIMARY KEY ((resource_name,slot)>(?,?))"
		if len(found) != 1 || !strings.HasPrefix(found[0], "SEARCH ") || !strings.HasSuffix(found[0], want) {
			t.Errorf("%s: %q, want a search of %q", what, found, want)
		}
	}
	s.exec(t, "INSERT INTO distributed_locks (resource_name, slot) VALUES ('a', 0); ANALYZE")
	s.exec(t, fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
		"INSERT INTO distributed_locks (resource_name, slot, fence, acquired_at, expires_at, released_at) "+
		"SELECT printf('lock%%05d', i), 0, 1, 1, 0, 1 FROM n", endedLocks))
	plan("statistics of an empty table")
	s.exec(t, "ANALYZE")
	plan("new statistics")
	s.exec(t, "CREATE INDEX further ON distributed_locks (released_at); "+
		"CREATE INDEX more ON distributed_locks (slot, resource_name); ANALYZE")
	plan("further indexes")
}

// waitsForNoRow enumerates while another session has locked all rows.
func waitsForNoRow(t *testing.T, store *sqllock.Store, lock func()) {
	t.Helper()
	g := mustAcquire(t, store, "held", 2)
	mustRelease(t, store, mustAcquire(t, store, "released", 0))
	lock()
	for after, want := range map[string]int{"": 2, "-1 held:slot:": 2, "0 held:slot:": 1} {
		p, err := store.Enumerate(briefly(t, 5*time.Second), after, 100)
		if err != nil || len(p.Leases) != want || want == 2 && p.Leases[0].Fence != g.Fence {
			t.Errorf("after %q: %+v, %v: must be %d leases", after, p, err, want)
		}
	}
}

// A page does not wait for rows, so it does not hang while another session keeps one locked.
//
// Fails when a page locks the rows that it reads.
func TestEnumerateWaitsForNoRow(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		store, pool := postgresWithPool(t)
		waitsForNoRow(t, store, func() {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			for _, statement := range []string{"UPDATE distributed_locks SET fence = fence + 1",
				"INSERT INTO distributed_locks (resource_name, slot) VALUES ('held:slot:', 1)"} {
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	server := sqltest.SharedMariaDB(t)
	serializable := isolationVariable(t, server) + "='SERIALIZABLE'"
	for way, params := range map[string]string{"one trip": oneTrip, "prepared": "",
		"serializable": "?" + settings(serializable, "autocommit=0")} {
		t.Run("MySQL, "+way, func(t *testing.T) {
			t.Parallel()
			store, other, _ := newLockScene(t, params)
			waitsForNoRow(t, store, func() {
				other.exec("START TRANSACTION", "UPDATE distributed_locks SET fence = fence + 1",
					"INSERT INTO distributed_locks (resource_name, slot) VALUES ('held:slot:', 1)")
			})
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		path := sqlitePath(t)
		store := sqliteOn(path).migrated(t).open(t, sqllock.Options{})
		var conn *sql.Conn
		waitsForNoRow(t, store, func() {
			var err error
			if conn, err = openSQLite(t, sqliteDSN(path)).Conn(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{"BEGIN IMMEDIATE", "UPDATE distributed_locks SET fence = fence + 1"} {
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
		})
		conn.Close()
	})
}

// A role that may only read the table can list all holders.
//
// Fails when a page writes or takes a lock, as a MySQL procedure could.
func TestEnumerateNeedsSelectOnly(t *testing.T) {
	t.Parallel()
	sees := func(t *testing.T, s subject, grant string) {
		g := mustAcquire(t, s.migrated(t).open(t, sqllock.Options{}), "a", 2)
		s.exec(t, grant)
		reader := s.as(t, "app")(t, sqllock.Options{})
		if p, err := reader.Enumerate(t.Context(), "", 10); err != nil || len(p.Leases) != 1 ||
			p.Leases[0].Fence != g.Fence {
			t.Errorf("%+v, %v: must be the lease with fence %d", p, err, g.Fence)
		}
		if r, err := reader.Extend(t.Context(), time.Minute, g); err == nil {
			t.Errorf("%+v: the role may write: the test shows nothing", r)
		}
	}
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		sees(t, postgres(t, "pgx"), "GRANT SELECT ON distributed_locks TO app")
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		s := mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip)
		sees(t, s, "GRANT SELECT ON "+s.database+".distributed_locks TO 'app'@'%'")
	})
}
