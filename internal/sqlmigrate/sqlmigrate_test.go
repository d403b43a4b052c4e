package sqlmigrate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// A subject is a separate database, reached in one way.
type subject struct {
	dialect sqlkit.Dialect
	open    func(t testing.TB) *sql.DB // opens a pool for one more host
}

// everywhere calls test with a database of each kind.
func everywhere(t *testing.T, test func(*testing.T, subject)) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		test(t, onOddPostgres(t))
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		test(t, behindPgBouncer(t))
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		test(t, onMySQL(t))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, onSQLite(t))
	})
}

// onOddPostgres returns a database with settings that change what statements see and how texts are
// read.
func onOddPostgres(t *testing.T) subject {
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	for _, set := range []string{"default_transaction_isolation = serializable", "standard_conforming_strings = off",
		"quote_all_identifiers = on", "search_path = nowhere, public, pg_catalog"} {
		if _, err := server.Exec("", "ALTER DATABASE "+database+" SET "+set); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.Exec(database, "CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN "+
		"RAISE EXCEPTION 'a function of a stranger was called'; END $$"); err != nil {
		t.Fatal(err)
	}
	return subject{sqlkit.Postgres, opener("pgx", server.DSN("", "", database))}
}

func behindPgBouncer(t *testing.T) subject {
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	bouncer := sqltest.PgBouncer(t, server, "transaction", sqltest.Options{Settings: []string{"default_pool_size=4"}})
	return subject{sqlkit.Postgres,
		opener("pgx", bouncer.DSN("", "", database)+"&default_query_exec_mode=exec")}
}

func onMySQL(t *testing.T) subject {
	server := sqltest.SharedMariaDB(t)
	return subject{sqlkit.MySQL, opener("mysql", server.DSN("", "", server.NewDatabase(t)))}
}

func onSQLite(t *testing.T) subject {
	return subject{sqlkit.SQLite, opener("sqlite", "file:"+filepath.Join(t.TempDir(), "a.db"))}
}

func opener(driver, dsn string) func(testing.TB) *sql.DB {
	return func(t testing.TB) *sql.DB {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1) // the minimum with which migrations must work
		t.Cleanup(func() { db.Close() })
		return db
	}
}

// schema returns a schema with the given number of migrations. The first creates a table in which
// each of the others increments a counter once. Repeat counts how often it was executed.
func (s subject) schema(name string, migrations int) sqlmigrate.Schema {
	table := s.dialect.Quote(name)
	schema := sqlmigrate.Schema{Dialect: s.dialect, Name: name, Table: name,
		Repeat: []string{"UPDATE " + table + " SET repeated = repeated + 1"}}
	if s.dialect == sqlkit.Postgres { // where names must be qualified
		schema.Schema = "public"
		table = s.dialect.Qualified("public", name)
		schema.Repeat = []string{"UPDATE " + table + " SET repeated = repeated + 1"}
	}
	for n := range migrations {
		statements := []string{"UPDATE " + table + " SET counted = counted + 1"}
		if n == 0 {
			statements = []string{"CREATE TABLE " + table + " (counted INTEGER NOT NULL, repeated INTEGER NOT NULL)",
				"INSERT INTO " + table + " (counted, repeated) VALUES (1, 0)"}
		}
		schema.Migrations = append(schema.Migrations, statements)
	}
	return schema
}

// counted returns how many migrations took effect, and how often Repeat was executed.
func counted(t *testing.T, db *sql.DB, s sqlmigrate.Schema) (migrations, repeated int) {
	t.Helper()
	if err := db.QueryRow("SELECT counted, repeated FROM "+s.Dialect.Qualified(s.Schema, s.Name)).Scan(&migrations,
		&repeated); err != nil {
		t.Fatal(err)
	}
	return migrations, repeated
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// Ten hosts that migrate at the same moment apply each migration once, even behind a pooler that
// gives every transaction a different session.
//
// Fails without the lock, with a session lock on Postgres, and when a host does not check again
// after it has taken the lock.
func TestManyHostsApplyEachMigrationOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, s subject) {
		schema := s.schema(`it's "the" [shop]`, 5)
		var all sync.WaitGroup
		for range 10 {
			db := s.open(t)
			all.Go(func() {
				if err := schema.Up(patient(t), db); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		db := s.open(t)
		if n, repeated := counted(t, db, schema); n != 5 || repeated != 10 {
			t.Errorf("%d migrations took effect, and Repeat %d times: want 5 and 10", n, repeated)
		}
		if err := schema.Verify(patient(t), db); err != nil {
			t.Error(err)
		}
	})
}

// A new version applies its migrations, an old one running beside it accepts them, and another set
// of tables in the same database has its own versions.
//
// Fails when the version table is not named after the set, or when a higher number is an error.
func TestMigrationsGoForward(t *testing.T) {
	everywhere(t, func(t *testing.T, s subject) {
		db, ctx := s.open(t), patient(t)
		old, young, other := s.schema("jobs", 2), s.schema("jobs", 4), s.schema("other", 1)
		if err := young.Verify(ctx, db); !errors.Is(err, sqlmigrate.ErrPending) ||
			!strings.Contains(err.Error(), "jobs_migrations") {
			t.Errorf("empty database: %v", err)
		}
		for _, step := range []struct {
			up       sqlmigrate.Schema
			want     int
			uptodate []sqlmigrate.Schema
			pending  []sqlmigrate.Schema
		}{
			{old, 2, []sqlmigrate.Schema{old}, []sqlmigrate.Schema{young, other}},
			{young, 4, []sqlmigrate.Schema{old, young}, []sqlmigrate.Schema{other}},
			{old, 4, []sqlmigrate.Schema{old, young}, []sqlmigrate.Schema{other}},
			{other, 1, []sqlmigrate.Schema{old, young, other}, nil},
		} {
			if err := step.up.Up(ctx, db); err != nil {
				t.Fatal(err)
			}
			if n, _ := counted(t, db, step.up); n != step.want {
				t.Errorf("%d migrations took effect: want %d", n, step.want)
			}
			for _, schema := range step.uptodate {
				if err := schema.Verify(ctx, db); err != nil {
					t.Error(err)
				}
			}
			for _, schema := range step.pending {
				if err := schema.Verify(ctx, db); !errors.Is(err, sqlmigrate.ErrPending) {
					t.Errorf("%v: must say that migrations are pending", err)
				}
			}
		}
	})
}

// Executing Statements manually has the same result as Up, and afterwards Up has nothing left to do
// but Repeat.
//
// Fails when Statements does not record the migrations.
func TestStatementsAreWhatUpDoes(t *testing.T) {
	everywhere(t, func(t *testing.T, s subject) {
		db, ctx := s.open(t), patient(t)
		schema := s.schema("jobs", 3)
		for _, statement := range schema.Statements() {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				t.Fatalf("%v in\n%s", err, statement)
			}
		}
		for _, again := range []func() error{
			func() error { return schema.Verify(ctx, db) }, func() error { return schema.Up(ctx, db) }} {
			if err := again(); err != nil {
				t.Error(err)
			}
		}
		if n, repeated := counted(t, db, schema); n != 3 || repeated != 2 {
			t.Errorf("%d migrations took effect, and Repeat %d times: want 3 and 2", n, repeated)
		}
	})
}

// Fails when Up trusts the records of migrations more than the existing tables.
func TestATableThatWasDroppedIsMadeAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, s subject) {
		db, ctx := s.open(t), patient(t)
		schema := s.schema(`it's "the" \ [shop]`, 3)
		for range 2 {
			if err := schema.Up(ctx, db); err != nil {
				t.Fatal(err)
			}
			if n, repeated := counted(t, db, schema); n != 3 || repeated != 1 {
				t.Errorf("%d migrations took effect, and Repeat %d times: want 3 and 1", n, repeated)
			}
			drop := "DROP TABLE " + s.dialect.Qualified(schema.Schema, schema.Name)
			if _, err := db.ExecContext(ctx, drop); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// When a migration fails, the earlier ones remain, and the error names the failed one. Once it is
// repaired, Up continues from there. On databases with transactional DDL, nothing is left of the
// failed migration.
//
// Fails when a failed migration is recorded.
func TestAMigrationThatFailsIsTriedAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, s subject) {
		db, ctx := s.open(t), patient(t)
		broken, mended := s.schema("jobs", 3), s.schema("jobs", 3)
		table := s.dialect.Qualified(mended.Schema, "jobs")
		mended.Migrations[2] = []string{"ALTER TABLE " + table + " ADD COLUMN more INTEGER",
			mended.Migrations[2][0]}
		broken.Migrations[2] = []string{mended.Migrations[2][0], "UPDATE nowhere SET x = 1"}
		for range 2 {
			if err := broken.Up(ctx, db); err == nil || !strings.Contains(err.Error(), "migration 3 of jobs: ") {
				t.Errorf("%v: must name the migration", err)
			}
			if err := broken.Verify(ctx, db); !errors.Is(err, sqlmigrate.ErrPending) ||
				!strings.Contains(err.Error(), "up to 2 recorded, of 3") {
				t.Errorf("%v: must say how far it is", err)
			}
		}
		_, err := db.Exec("SELECT more FROM " + table)
		if there := err == nil; there != (s.dialect == sqlkit.MySQL) {
			t.Errorf("the column of the migration that failed is there: %v", there)
		}
		if err := mended.Up(ctx, db); err != nil {
			t.Error(err)
		}
		if n, repeated := counted(t, db, mended); n != 3 || repeated != 1 {
			t.Errorf("%d migrations took effect, and Repeat %d times: want 3 and 1", n, repeated)
		}
	})
}

// While another host migrates, or has stopped in the middle, Up ends with its context, and says
// what it waited for.
//
// Fails when the wait for the lock is not bounded.
func TestTheWaitForOthersIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, s subject) {
		first := s.schema("jobs", 1)
		if err := first.Up(patient(t), s.open(t)); err != nil {
			t.Fatal(err)
		}
		release := s.hold(t, first)
		// A busy machine may take the first two seconds to connect and not reach the lock.
		for limit := 2 * time.Second; ; limit *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			err := s.schema("jobs", 2).Up(ctx, s.open(t))
			took := time.Since(began)
			cancel()
			if err == nil || took > limit+testkit.Patience/2 {
				t.Fatalf("%v after %v: must fail within %v", err, took, limit)
			}
			if strings.Contains(err.Error(), "locked") || sqlkit.State(err) == sqlkit.LockNotAvailable ||
				strings.Contains(err.Error(), "another host is migrating") {
				break
			}
			if limit > testkit.Patience/2 {
				t.Fatalf("%v: must say that somebody else has the lock", err)
			}
		}
		release()
		if err := s.schema("jobs", 2).Up(patient(t), s.open(t)); err != nil {
			t.Error(err)
		}
	})
}

// hold takes the lock of migrations until release is called, like a host in the middle of a
// migration.
func (s subject) hold(t *testing.T, schema sqlmigrate.Schema) (release func()) {
	t.Helper()
	release, err := schema.Hold(t.Context(), s.open(t))
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// Nothing is left in the session for the next user of the connection: on Postgres no timeout or
// search_path, on MySQL no mode, timeout or lock.
func TestTheSessionIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		open    func(*testing.T) subject
		session string
	}{
		"PgBouncer": {behindPgBouncer, "SELECT name, setting FROM pg_settings WHERE name IN ('lock_timeout', " +
			"'idle_in_transaction_session_timeout', 'search_path')"},
		// MySQL and MariaDB have different names for the isolation level.
		"MySQL": {onMySQL, "SHOW SESSION VARIABLES WHERE Variable_name IN ('sql_mode', 'wait_timeout', " +
			"'lock_wait_timeout', 'completion_type', 'tx_isolation', 'transaction_isolation')"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := test.open(t)
			db := s.open(t)
			settings := func() map[string]string {
				all := map[string]string{}
				err := sqlkit.EachRow(t.Context(), db, test.session, nil, func(rows *sql.Rows) error {
					var name, value string
					err := rows.Scan(&name, &value)
					all[name] = value
					return err
				})
				if err != nil || len(all) < 3 {
					t.Fatal(all, err)
				}
				return all
			}
			before := settings()
			if err := s.schema("jobs", 2).Up(patient(t), db); err != nil {
				t.Fatal(err)
			}
			if after := settings(); !maps.Equal(before, after) {
				t.Errorf("%v before, %v after", before, after)
			}
		})
	}
}

// deaf is a driver that ignores the context while the server hangs, as MySQL's driver does in a
// COMMIT.
type deaf chan struct{}

func (d deaf) Connect(context.Context) (driver.Conn, error) { <-d; return nil, driver.ErrBadConn }
func (d deaf) Driver() driver.Driver                        { return nil }

// Fails when a call waits for its driver.
func TestUpAndVerifyEndWithTheirContextWhateverTheDriverDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(deaf)
		db := sql.OpenDB(hangs)
		defer db.Close()
		schema := sqlmigrate.Schema{Dialect: sqlkit.MySQL, Name: "jobs", Migrations: [][]string{{"x"}}}
		for what, call := range map[string]func(context.Context, *sql.DB) error{"up": schema.Up,
			"verify": schema.Verify} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			err := call(ctx, db)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		}
		close(hangs)
		synctest.Wait()
	})
}

// A server that hangs has not answered, but has not failed either: when it continues, so does Up.
func TestUpAndVerifyEndWithTheirContextWhenTheServerHangs(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (*sqltest.Server, subject){
		"Postgres": func(t *testing.T) (*sqltest.Server, subject) {
			server := sqltest.Postgres(t)
			return server, subject{sqlkit.Postgres, opener("pgx", server.DSN("", "", server.NewDatabase(t)))}
		},
		"MySQL": func(t *testing.T) (*sqltest.Server, subject) {
			server := sqltest.MariaDB(t)
			return server, subject{sqlkit.MySQL, opener("mysql", server.DSN("", "", server.NewDatabase(t)))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.SkipShort(t)
			server, s := start(t)
			db, schema := s.open(t), s.schema("jobs", 1)
			if err := schema.Up(patient(t), db); err != nil {
				t.Fatal(err)
			}
			if err := server.Pause(); err != nil {
				t.Fatal(err)
			}
			for what, call := range map[string]func(context.Context, *sql.DB) error{"up": schema.Up,
				"verify": schema.Verify} {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				began := time.Now()
				err := call(ctx, s.open(t))
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > testkit.Patience/2 {
					t.Errorf("%s: %v after %v", what, err, took)
				}
				cancel()
			}
			if err := server.Resume(); err != nil {
				t.Fatal(err)
			}
			if err := schema.Up(patient(t), db); err != nil {
				t.Error(err)
			}
		})
	}
}

// A host that has stopped in the middle of a migration loses its lock to the others.
//
// Fails when the server waits for it.
func TestAHostThatStoppedLosesTheLock(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) subject{"PgBouncer": behindPgBouncer, "MySQL": onMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Long(t)
			s := open(t)
			first := s.schema("jobs", 1)
			if err := first.Up(patient(t), s.open(t)); err != nil {
				t.Fatal(err)
			}
			defer s.hold(t, first)()
			if err := s.schema("jobs", 2).Up(patient(t), s.open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}
