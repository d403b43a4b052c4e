package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// If tables or privileges are not set up correctly, each call returns an error that matches
// dlock.ErrSetup and says what to do. Migrate creates missing tables, and does not change a table
// that differs.
//
// Fails when a worker treats old or missing tables as a temporary outage.
func TestSetUpThatIsWrong(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := on(t, d.pool(t, "", ""), "durable")
	for _, call := range calls(s) {
		err := call.make(t.Context())
		said := errors.Is(err, dlock.ErrSetup) && strings.Contains(err.Error(), "call Migrate")
		if !said && call.name != "Notify" {
			t.Errorf("without tables: %s: %v", call.name, err)
		}
	}
	migrated := func(when string) {
		t.Helper()
		err := s.Verify(t.Context())
		if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("%s: Verify: %v", when, err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatalf("%s: Migrate: %v", when, err)
		}
		if failed := failing(t, s); len(failed) > 0 {
			t.Errorf("%s: %v", when, failed)
		}
	}
	migrated("without tables")
	d.exec(t, "DROP INDEX durable_runs_tick")
	migrated("without an index")
	d.exec(t, "DROP TABLE durable_attempts, durable_runs, durable_handlers, durable_schedules, durable_migrations")
	migrated("when all was dropped")

	// The tables of an older version and of a newer version.
	d.exec(t, "DELETE FROM durable_migrations WHERE version > 0")
	migrated("of an older version")
	d.exec(t, "ALTER TABLE durable_runs ADD COLUMN newer text")
	if failed := failing(t, s); len(failed) > 0 {
		t.Errorf("a column more: %v", failed)
	}
	d.exec(t, "ALTER TABLE durable_handlers DROP COLUMN paused_note")
	for name, call := range map[string]func(context.Context) error{"Verify": s.Verify, "Migrate": s.Migrate} {
		if err := call(t.Context()); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "paused_note") {
			t.Errorf("%s without a column: %v", name, err)
		}
	}
}

// sqlTx is like the Tx that durable.SQLTx returns.
type sqlTx struct {
	query func(ctx context.Context, query string, args ...any) store.Row
}

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return t.query(ctx, query, args...)
}

// A transaction that has ended or was aborted by an error queues no run, and the error says why.
// That holds with pgx and with database/sql.
//
// Fails when the run is queued in another transaction.
func TestTransactionsThatAreWrong(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	pool := d.pool(t, "", "")
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	ctx := t.Context()
	for want, spoil := range map[string]func(exec func(string) error, end func() error){
		"closed":  func(_ func(string) error, end func() error) { _ = end() },
		"aborted": func(exec func(string) error, _ func() error) { _ = exec("SELECT 1/0") },
	} {
		native, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		spoil(func(q string) error { _, err := native.Exec(ctx, q); return err },
			func() error { return native.Rollback(ctx) })
		_, err = s.Insert(ctx, pgxTx{native}, store.NewRun{Handler: "orders"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pgx: %v, want %q", err, want)
		}
		_ = native.Rollback(ctx)

		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		spoil(func(q string) error { _, err := tx.ExecContext(ctx, q); return err }, tx.Rollback)
		_, err = s.Insert(ctx, sqlTx{func(ctx context.Context, query string, args ...any) store.Row {
			return tx.QueryRowContext(ctx, query, args...)
		}}, store.NewRun{Handler: "orders"})
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "rolled back") {
			t.Errorf("database/sql: %v, want %q", err, want)
		}
		_ = tx.Rollback()
	}
	if runs, err := s.Runs(ctx, store.Filter{}, 1); len(runs) != 0 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
}

// roles are the roles in docs/sql.md, with the calls that each may make.
var roles = map[string]string{
	"a worker": "Verify Register Due Materialize Insert Claim Renew Finish Reclaim Stats Notify Sweep Runs Run " +
		"Schedules Handlers Requeue Cancel SetHandler SetSchedule Forget",
	"a program that triggers": "Insert Notify",
	"an operator": "Verify Insert Notify Runs Run Schedules Handlers Requeue Cancel SetHandler SetSchedule " +
		"Forget",
	"who only looks": "Verify Runs Run Schedules Handlers",
}

// documented returns the grants under a heading of docs/sql.md, as one statement each.
func documented(t testing.TB, heading string) []string {
	t.Helper()
	grants, err := sqltest.Documented("../../../docs/sql.md", heading, "work", "app")
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

// With its privileges from docs/sql.md, each role can make its calls and no others. If one
// privilege is missing, the error names it.
//
// Fails when a statement needs an undocumented privilege, or when a documented privilege is not
// needed.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for role, can := range roles {
		d := newDatabase(t)
		d.exec(t, "CREATE SCHEMA work", "CREATE TABLE other (x int)")
		open := func(user string) *Store {
			s, err := New(d.pool(t, "", user), Options{TableName: "tickslot_durable", Schema: "work"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.own.close)
			return s
		}
		owner := open("")
		if err := owner.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if failed := failing(t, owner); len(failed) > 0 {
			t.Fatalf("its owner: %v", failed)
		}
		grants := documented(t, "durable, "+role)
		d.exec(t, grants...)
		s := open("app")
		allowed := func(name string) bool { return strings.Contains(" "+can+" ", " "+name+" ") }
		try := func() (failed map[string]error) {
			_, err := owner.pool.Exec(t.Context(), "TRUNCATE work.tickslot_durable_runs RESTART IDENTITY CASCADE")
			if err != nil {
				t.Fatal(err)
			}
			return failing(t, s)
		}
		failed := try()
		for _, call := range calls(s) {
			switch err := failed[call.name]; {
			case err != nil && allowed(call.name):
				t.Errorf("%s: %s: %v", role, call.name, err)
			case err != nil && !errors.Is(err, dlock.ErrSetup):
				t.Errorf("%s: %s: %v, want a setup error", role, call.name, err)
			}
		}
		if err := s.Migrate(t.Context()); allowed("Verify") && err != nil {
			t.Errorf("%s: Migrate with complete tables: %v", role, err)
		}
		for _, forbidden := range []string{"SELECT * FROM other", "TRUNCATE work.tickslot_durable_runs",
			"DROP TABLE work.tickslot_durable_runs", "CREATE TABLE work.mine (x int)",
			"UPDATE work.tickslot_durable_migrations SET version = 9"} {
			if _, err := s.pool.Exec(t.Context(), forbidden); err == nil {
				t.Errorf("%s: %s: it can", role, forbidden)
			}
		}
		oneRightLess(t, d, role, grants, func() (failed []error) {
			for name, err := range try() {
				if allowed(name) {
					failed = append(failed, err)
				}
			}
			return failed
		})
	}
}

// oneRightLess revokes each privilege in turn, and fails the test unless an error names it.
func oneRightLess(t *testing.T, d database, role string, grants []string, try func() []error) {
	t.Helper()
	for _, right := range sqltest.Rights(grants) {
		d.exec(t, right.Revoke)
		failed := try()
		if len(failed) == 0 {
			t.Errorf("%s: %s is not needed", role, right)
		}
		verb, _, _ := strings.Cut(right.Name, " ")
		named := verb == "USAGE" // the error names the schema
		for _, err := range failed {
			text := err.Error()
			named = named || strings.Contains(text, verb) || strings.Contains(right.On, "_migrations") &&
				strings.Contains(text, "_migrations")
			if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(text, "privilege") ||
				strings.Contains(text, servertest.Canary) {
				t.Errorf("%s: without %s: %v", role, right, err)
			}
		}
		if !named {
			t.Errorf("%s: without %s, no error names it: %v", role, right, failed)
		}
		d.exec(t, right.Grant)
	}
}

// A user with CREATE on the schema can migrate and then make every call. Without that privilege,
// the error of Migrate names it.
//
// Fails when a migration needs an undocumented privilege.
func TestWhoMigrates(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(t, "CREATE SCHEMA work")
	s, err := New(d.pool(t, "", "app"), Options{TableName: "tickslot_durable", Schema: "work"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.own.close)
	grants := documented(t, "who migrates, Postgres")
	d.exec(t, grants...)
	d.exec(t, "REVOKE CREATE ON SCHEMA work FROM app")
	if err := s.Migrate(t.Context()); !errors.Is(err, dlock.ErrSetup) ||
		!strings.Contains(err.Error(), "permission denied for schema work") {
		t.Errorf("without CREATE: %v", err)
	}
	d.exec(t, grants...)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if failed := failing(t, s); len(failed) > 0 {
		t.Error(failed)
	}
}
