package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Functions and operators of other users in the search path are never called with the privileges of
// the application or of the owner who migrates, even if their parameters match better than those of
// Postgres's own functions.
//
// Fails when one of the functions does not set its search_path.
func TestStrangersFunctionsAreNotCalledPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	fail := " LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a function of a stranger was called'; END $$; "
	s.exec(t, "CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint"+fail+
		// Postgres does not prefer these functions, but finds them first with this search_path.
		"CREATE FUNCTION public.floor(float8) RETURNS float8"+fail+
		"CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text"+fail+
		"CREATE FUNCTION public.to_regclass(varchar) RETURNS regclass"+fail+
		"CREATE FUNCTION public.json_object_agg(name, name) RETURNS json"+fail+
		"CREATE FUNCTION public.numeric_times(numeric, integer) RETURNS numeric"+fail+
		"CREATE FUNCTION public.times(bigint, interval) RETURNS interval"+fail+
		"CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.numeric_times);"+
		"CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.times);")
	for _, path := range []string{"public", "public, pg_catalog"} {
		s.exec(t, "ALTER DATABASE "+s.database+" SET search_path = "+path)
		store := s.as(t, "")(t, sqllock.Options{})
		everything(t, store)
		if err := store.Verify(t.Context()); err != nil {
			t.Errorf("%s: verify: %v", path, err)
		}
		if err := s.as(t, "")(t, sqllock.Options{TableName: "more in " + path}).Migrate(t.Context()); err != nil {
			t.Errorf("%s: migrate: %v", path, err)
		}
	}
}

// If another client of a pooler sets search_path, the store still uses its own table.
//
// Fails when names are not qualified: there are two holders, and a healthy lease is lost.
func TestSearchPathThroughAPoolerPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	bouncer := sqltest.PgBouncer(t, server, "transaction", sqltest.Options{Settings: []string{"default_pool_size=1"}})
	open := viaPgx(t, bouncer.DSN("", "", database))
	host := open(t, sqllock.Options{})
	if err := host.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := host.TryAcquire(t.Context(), driver.Request{Name: "job", Slots: 1, Token: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	other, err := pgxpool.New(t.Context(), bouncer.DSN("", "", database)+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Exec(t.Context(), "CREATE SCHEMA staging"); err != nil {
		t.Fatal(err)
	}
	if err := open(t, sqllock.Options{Schema: "staging"}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), "SET search_path = staging"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, sqllock.Options{}).TryAcquire(t.Context(),
		driver.Request{Name: "job", Slots: 1, Token: "b", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("%v: must be refused: it is held", err)
	}
	if r, err := host.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("%v, %v: the lease is healthy", r, err)
	}
}

// Settings of a database or role affect neither the answers nor the plans of the statements.
//
// Fails when quote_all_identifiers changes the text that Verify reads, and when enable_nestloop =
// off makes every call compile its plan again.
func TestSettingsOfTheDatabasePostgres(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := postgres(t, "pgx").migrated(t)
	for _, set := range []string{
		"quote_all_identifiers = on", "enable_nestloop = off", "enable_indexscan = off", "enable_indexonlyscan = off",
		"synchronous_commit = local",
	} {
		s.exec(t, "ALTER DATABASE "+s.database+" SET "+set)
	}
	store := s.as(t, "")(t, sqllock.Options{})
	if err := store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	everything(t, store)
	fastest := time.Hour
	for range 5 {
		began := time.Now()
		g, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Extend(t.Context(), time.Minute, g); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest > 300*time.Millisecond {
		t.Errorf("an acquire, an extend and a release take %v", fastest)
	}
}

// Additional columns with any names do no harm.
//
// Fails when a column is taken for a variable with the same name: the attempt never ended.
func TestFurtherColumnsPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	for _, column := range []string{"n", "seen", "clock", "free", "v_slots", "v_ended", "v_clock", "p_token", "p_wait",
		"o_slot", "i", "t", "x", "locked", "again"} {
		s.exec(t, "ALTER TABLE distributed_locks ADD COLUMN "+column+" integer")
	}
	store := s.open(t, sqllock.Options{})
	if err := store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	everything(t, store)
}

// To a database without an encoding, names are bytes, whatever they contain.
//
// Fails when the leases of a call are sent with escapes: the server cannot decode them and refuses
// all leases of the host.
func TestNamesWithSeparatorsPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t, "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	store := viaPgx(t, server.DSN("", "", database))(t, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a\u2028b", "a\u2029", `a\u2028`, `a\\`, "<&>", "世"} {
		g, err := store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: 1, Token: fmt.Sprint("t", i),
			TTL: time.Minute})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if r, err := store.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Errorf("%q: extend: %v, %v", name, r, err)
		}
		if err := store.Update(t.Context(), name, driver.Update{Trigger: &ann}); err != nil {
			t.Errorf("%q: update: %v", name, err)
		}
		if o, err := store.Inspect(t.Context(), name); err != nil || o[0].Trigger == nil {
			t.Errorf("%q: inspect: %v, %v", name, o, err)
		}
		if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Errorf("%q: release: %v, %v", name, r, err)
		}
	}
}

// A server that cannot grant must not refuse either, because the data of a replica may be outdated.
//
// Fails when only writes are errors.
func TestReadOnlyServersDoNotRefusePostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	if _, err := s.open(t, sqllock.Options{}).TryAcquire(t.Context(),
		driver.Request{Name: "a", Token: "t", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "ALTER DATABASE "+s.database+" SET default_transaction_read_only = on")
	_, err := s.as(t, "")(t, sqllock.Options{}).TryAcquire(t.Context(),
		driver.Request{Name: "a", Token: "u", TTL: time.Minute})
	if !readsOnly(err) || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrFault) ||
		errors.Is(err, driver.ErrSetup) {
		t.Errorf("%v: must say that the server is read-only", err)
	}
}

// A disguised driver changes the version that a server reports. Servers that are not Postgres lack
// a function.
type disguised struct {
	sqllock.Driver
	as string
}

func (d disguised) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	if !strings.HasPrefix(d.as, "PostgreSQL 1") && strings.Contains(query, "row_security_active") {
		return errors.New("unknown function: row_security_active()")
	}
	err := d.Driver.QueryRow(ctx, query, args, dest...)
	for _, to := range dest {
		if text, ok := to.(*string); ok && strings.HasPrefix(*text, "PostgreSQL ") {
			*text = d.as
		}
	}
	return err
}

// Servers that accept Postgres clients but have different locks are refused at startup.
//
// Fails when the version is not checked.
func TestOtherServersAreRefusedPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	_ = s
	for version, want := range map[string]bool{
		"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15)":                true,
		"PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang":       true,
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc, Redshift 1.0.12103": true,
		"PostgreSQL 16.4 (Debian 16.4-1.pgdg120+1) on x86_64-pc-linux-gnu":               false,
		"PostgreSQL 15.4 on aarch64-unknown-linux-gnu, compiled by gcc":                  false,
	} {
		store := sqllock.PostgresOn(disguised{onPool{pool}, version}, sqllock.Options{})
		for what, call := range map[string]func(context.Context) error{"verify": store.Verify,
			"migrate": store.Migrate} {
			if err := call(t.Context()); errors.Is(err, driver.ErrSetup) != want || want &&
				!strings.Contains(err.Error(), "not Postgres") {
				t.Errorf("%s: %s: %v", version, what, err)
			}
		}
	}
}

// onPool is a Driver on a pgx pool.
type onPool struct{ pool *pgxpool.Pool }

func (p onPool) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return p.pool.QueryRow(ctx, query, args...).Scan(dest...)
}

func (p onPool) QueryRowAlone(context.Context, string, []any, ...any) error {
	return errors.ErrUnsupported
}

func (p onPool) WithDB(do func(*sql.DB) error) error {
	db := stdlib.OpenDBFromPool(p.pool)
	return errors.Join(do(db), db.Close())
}

func (p onPool) Close() error { return nil }

// Audit warns of a transaction that was left open, which slows down every operation, and of the
// dead rows that it leaves.
//
// Fails when open transactions or dead rows are not checked.
func TestAuditOldTransactionsPostgres(t *testing.T) {
	const manyDead = 60_000
	t.Parallel()
	s, pool := postgresWithPool(t)
	g, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	audits(t, "a new table", s, "postgres is a superuser")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	audits(t, "a young transaction", s, "postgres is a superuser")
	s.SetOldTransaction(0)
	audits(t, "an old transaction", s, "a transaction in this database is old: process ", "postgres is a superuser")
	s.SetOldTransaction(time.Hour)
	for _, statement := range []string{fmt.Sprintf(idleRows, "'gone', i, 1", manyDead),
		"DELETE FROM distributed_locks WHERE resource_name = 'gone'"} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
		t.Log(err) // before Postgres 15, statistics arrive with a delay
	}
	if err := testkit.Poll(10*time.Second, "a warning", func() error {
		warnings, err := s.Audit(t.Context())
		if err == nil && !strings.Contains(strings.Join(warnings, "\n"), "old versions of") {
			err = errors.New(strings.Join(warnings, "\n"))
		}
		return err
	}); err != nil {
		t.Errorf("%v: must tell of old versions of rows", err)
	}
	if r, err := s.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("%v, %v", r, err)
	}
}
