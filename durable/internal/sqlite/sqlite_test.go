package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/durable/internal/sqlite"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
	"github.com/tickslot/tickslot/internal/testkit"
)

const table = "tickslot_durable"

// open opens a pool that is closed after the test.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// dsn returns the data source name of a file. Commits do not sync, because no test cuts the power.
func dsn(path string) string { return "file:" + path + "?_pragma=synchronous(off)" }

// on returns a store on a pool.
func on(t testing.TB, db *sql.DB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.New(db, table, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// migrated creates the tables of s and returns s.
func migrated(t testing.TB, s store.Store) store.Store {
	t.Helper()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			path := filepath.Join(t.TempDir(), "durable.db")
			next := func() store.Store { return on(t, open(t, dsn(path))) }
			migrated(t, next())
			return next
		},
		NotifiesOnlyItself: true,

		Rounds: testkit.Rounds(t, 1, 5),
		Begin: func(t testing.TB, s store.Store) storetest.Transaction {
			t.Helper()
			tx, err := sqlite.Pool(s).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Transaction{Tx: sqlTx{tx}, Commit: tx.Commit, Rollback: tx.Rollback}
		},
		SeenAhead: func(t testing.TB, s store.Store, by time.Duration) {
			t.Helper()
			if _, err := sqlite.Pool(s).ExecContext(t.Context(), fmt.Sprintf("UPDATE %s_schedules SET "+
				"seen_at = seen_at + %d", table, by.Microseconds())); err != nil {
				t.Fatal(err)
			}
		},
		Refuse: func(t testing.TB, s store.Store, handler string) {
			t.Helper()
			if _, err := sqlite.Pool(s).ExecContext(t.Context(), fmt.Sprintf("CREATE TRIGGER refuse BEFORE INSERT ON "+
				"%s_runs WHEN NEW.handler = '%s' BEGIN SELECT RAISE(ABORT, 'no'); END", table, handler)); err != nil {
				t.Fatal(err)
			}
		},
	})
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}
