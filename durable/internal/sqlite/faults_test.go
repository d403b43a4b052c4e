package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/sqlite"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// All faults of the arguments are returned together.
func TestFaultsOfArguments(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "no TableName", "a{b": "without braces", "a\x00": "control", "\xff": "use text",
		strings.Repeat("a", 41): "at most 40 bytes", "SQLite_durable": "begin with sqlite_",
	} {
		_, err := sqlite.New(nil, name, "")
		if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(fmt.Sprint(err), want) ||
			!strings.Contains(err.Error(), "no *sql.DB") {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	for _, name := range []string{"a", `o'r"d`, "grüße 日本", strings.Repeat("a", 40)} {
		s, err := sqlite.New(open(t, dsn(filepath.Join(t.TempDir(), "durable.db"))), name, "")
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		migrated(t, s)
		done, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"})
		if err != nil || done[0] != (store.Inserted{ID: 1, Fresh: true}) {
			t.Errorf("%q: %+v, %v", name, done, err)
		}
	}
}

// everything returns one call of each method.
func everything(s store.Store) map[string]func(context.Context) error {
	key := store.RunKey{ID: 1, Attempt: 1}
	orders := store.Handler{Name: "orders", MaxAttempts: 1}
	return map[string]func(context.Context) error{
		"Verify": s.Verify,
		"Register": func(ctx context.Context) error {
			return s.Register(ctx, "w", []store.Handler{orders}, []store.Schedule{{Name: "daily", Spec: "1"}}, true)
		},
		"Due": func(ctx context.Context) error { _, err := s.Due(ctx, store.DueSchedule{}, 1000); return err },
		"Materialize": func(ctx context.Context) error {
			_, err := s.Materialize(ctx, []store.Plan{{Schedule: store.DueSchedule{Name: "daily", Spec: "1"}}})
			return err
		},
		"Claim": func(ctx context.Context) error {
			claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: "w", Handlers: []store.Handler{orders}, Limit: 1,
				TTL: time.Minute})
			if len(claimed.Runs) > 0 {
				key = claimed.Runs[0].RunKey
			}
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, "w", []store.RunKey{key}, time.Minute)
			return err
		},
		"Finish": func(ctx context.Context) error {
			_, err := s.Finish(ctx, "w", []store.Result{{RunKey: key, Outcome: store.OutcomeOK,
				State: store.StateSucceeded}})
			return err
		},
		"Reclaim": func(ctx context.Context) error { _, err := s.Reclaim(ctx, 1, 5); return err },
		"Sweep": func(ctx context.Context) error {
			_, err := s.Sweep(ctx, store.Retention{Succeeded: 1}, 1)
			return err
		},
		"Stats": func(ctx context.Context) error { _, err := s.Stats(ctx, time.Hour); return err },
		"Insert": func(ctx context.Context) error {
			_, err := s.Insert(ctx, nil, store.NewRun{Handler: "orders"})
			return err
		},
		"Cancel": func(ctx context.Context) error { _, err := s.Cancel(ctx, 1, store.Cause{}); return err },
		"Requeue": func(ctx context.Context) error {
			_, _, err := s.Requeue(ctx, store.Filter{}, store.Cause{}, 10)
			return err
		},
		"SetHandler": func(ctx context.Context) error {
			return s.SetHandler(ctx, "orders", store.Override{MaxConcurrency: new(1)})
		},
		"SetSchedule": func(ctx context.Context) error {
			return s.SetSchedule(ctx, "daily", store.Override{PausedUntil: new(time.Hour)})
		},
		"Forget":    func(ctx context.Context) error { _, err := s.Forget(ctx, "daily"); return err },
		"Runs":      func(ctx context.Context) error { _, err := s.Runs(ctx, store.Filter{}, 10); return err },
		"Run":       func(ctx context.Context) error { _, _, _, err := s.Run(ctx, 1); return err },
		"Schedules": func(ctx context.Context) error { _, err := s.Schedules(ctx); return err },
		"Handlers":  func(ctx context.Context) error { _, err := s.Handlers(ctx); return err },
	}
}

// refuses fails the test unless the error of each call says that the setup is wrong.
func refuses(t *testing.T, s store.Store, want string, but ...string) {
	t.Helper()
	for name, call := range everything(s) {
		if strings.Contains(strings.Join(but, " "), name) {
			continue
		}
		if err := call(t.Context()); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a setup error that contains %q", name, err, want)
		}
	}
}

// If the file or its tables are not set up correctly, calls return an error that matches
// dlock.ErrSetup and says what to do.
func TestSetUpThatIsWrong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	db := open(t, dsn(path))
	s := on(t, db)
	refuses(t, s, "call Migrate")
	migrated(t, s)
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}

	if _, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"}); err != nil {
		t.Fatal(err)
	}
	refuses(t, on(t, open(t, "file:"+path+"?mode=ro")), "able to write",
		"Due Stats Runs Run Schedules Handlers", "Reclaim Sweep Requeue") // these write nothing
	refuses(t, on(t, open(t, filepath.Join(path, "no folder"))), "")

	// Migrate creates whatever is missing.
	for _, statement := range []string{"DROP INDEX tickslot_durable_runs_tick", "DROP TABLE tickslot_durable_attempts",
		"DELETE FROM tickslot_durable_migrations"} {
		exec(statement)
		if err := s.Verify(t.Context()); !errors.Is(err, dlock.ErrSetup) {
			t.Errorf("%s: Verify: %v", statement, err)
		}
		if statement == "DROP TABLE tickslot_durable_attempts" {
			exec("DROP TABLE tickslot_durable_runs") // its absence tells Migrate to begin again
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("%s: Migrate: %v", statement, err)
		}
	}
	exec("INSERT INTO tickslot_durable_migrations (version) VALUES (99)", "ALTER TABLE tickslot_durable_runs "+
		"ADD COLUMN newer TEXT")
	if err := s.Verify(t.Context()); err != nil {
		t.Errorf("the tables of a newer version: %v", err)
	}

	// Migrate does not change a table that differs.
	exec("ALTER TABLE tickslot_durable_handlers DROP COLUMN paused_note")
	for name, call := range map[string]func(context.Context) error{"Verify": s.Verify, "Migrate": s.Migrate} {
		if err := call(t.Context()); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "paused_note") {
			t.Errorf("%s without a column: %v", name, err)
		}
	}
}

// A file that another connection has locked is not a setup error. Calls that write return in time
// and say what they waited for. Calls that read do not wait.
func TestLockedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	// Many applications set busy_timeout, which does not end with a context.
	s := migrated(t, on(t, open(t, dsn(path)+"&_pragma=busy_timeout(60000)")))
	other, err := open(t, dsn(path)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for name, call := range everything(s) {
		reads := strings.Contains("Verify Due Stats Runs Run Schedules Handlers", name)
		limit := 100 * time.Millisecond
		if reads {
			limit = testkit.Patience
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		err := call(ctx)
		took := time.Since(began)
		cancel()
		if !reads && took > 20*time.Second { // allows for a busy machine; busy_timeout would take a minute
			t.Errorf("%s took %v", name, took)
		}
		if reads {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "locked") &&
			!errors.Is(err, context.DeadlineExceeded) { // a busy machine may report only this error in time
			t.Errorf("%s: %v", name, err)
		}
	}
	fresh, err := sqlite.New(open(t, dsn(path)), "other", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := fresh.Migrate(ctx); err == nil || errors.Is(err, dlock.ErrSetup) {
		t.Errorf("Migrate: %v", err)
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"}); err != nil {
		t.Errorf("after the lock was released: %v", err)
	}
}

// After a failed call, no transaction is left open and no connection is lost.
func TestFailedCallsLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	db := open(t, dsn(filepath.Join(t.TempDir(), "durable.db")))
	db.SetMaxOpenConns(1)
	s := migrated(t, on(t, db))
	if _, err := db.ExecContext(t.Context(), "CREATE TRIGGER refuse BEFORE INSERT ON tickslot_durable_attempts "+
		"BEGIN SELECT RAISE(ABORT, 'no'); END"); err != nil {
		t.Fatal(err)
	}
	calls := everything(s)
	for _, name := range []string{"Register", "Insert", "Claim", "Finish", "Insert", "Claim"} {
		if err := calls[name](t.Context()); (err != nil) != (name == "Finish") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if run, attempts, ok, err := s.Run(t.Context(), 1); run.State != store.StateRunning || len(attempts) != 0 || !ok ||
		err != nil {
		t.Errorf("after a failed Finish: %+v, %+v, %t, %v", run, attempts, ok, err)
	}
}

// If a transaction of the application cannot queue a run, the error says why.
func TestTransactionsThatAreWrong(t *testing.T) {
	t.Parallel()
	db := open(t, dsn(filepath.Join(t.TempDir(), "durable.db")))
	s := migrated(t, on(t, db))
	begin := func(db *sql.DB) *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	ended := begin(db)
	_ = ended.Rollback()
	elsewhere := begin(open(t, dsn(filepath.Join(t.TempDir(), "other.db"))))
	for _, step := range []struct {
		what string
		tx   store.Tx
		want string
	}{
		{"one that has ended", sqlTx{ended}, "already been committed or rolled back"},
		{"one of another file", sqlTx{elsewhere}, "call Migrate"},
		{"one of Postgres", postgresTx{}, "does not belong to the SQLite database of this store (SQLSTATE 42601)"},
	} {
		_, err := s.Insert(t.Context(), step.tx, store.NewRun{Handler: "orders"})
		if err == nil || !strings.Contains(err.Error(), step.want) || strings.Contains(err.Error(), "3.38") {
			t.Errorf("%s: %v, want %q", step.what, err, step.want)
		}
	}
	if runs, err := s.Runs(t.Context(), store.Filter{}, 1); len(runs) != 0 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
}

// postgresTx answers like a Postgres transaction.
type postgresTx struct{}

func (t postgresTx) QueryRow(context.Context, string, ...any) store.Row { return t }

func (postgresTx) Scan(...any) error { return syntaxError{} }

type syntaxError struct{}

func (syntaxError) Error() string    { return `ERROR: syntax error at or near "ON" (SQLSTATE 42601)` }
func (syntaxError) SQLState() string { return "42601" }

// The statements of a worker's loops read only the rows that they concern, no matter how many runs
// wait or have ended.
//
// Fails when an index is missing, or when a condition does not match its index.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	db := open(t, dsn(filepath.Join(t.TempDir(), "durable.db")))
	s := on(t, db)
	migrated(t, s)
	wants := map[string][]string{
		"look": {"_claim (handler=? AND priority=? AND run_at<?)", "_claim (handler=? AND priority=? AND run_at>?)",
			"COVERING INDEX tickslot_durable_runs_running (handler=?"},
		"look_partitions": {"_partition (handler=? AND partition_key>?)",
			"_partition (handler=? AND partition_key=? AND priority=? AND run_at<?)",
			"COVERING INDEX tickslot_durable_runs_running (handler=? AND state=? AND partition_key=?)"},
		"look_all":      {"COVERING INDEX tickslot_durable_runs_running"},
		"expired":       {"_running"},
		"old":           {"COVERING INDEX tickslot_durable_runs_ended (state=? AND finished_at<?)"},
		"by_key":        {"_key (handler=? AND key=?)"},
		"to_requeue":    {"_ended (state=?"},
		"due":           {"_schedules_plan ((plan_at,name)>(?,?) AND plan_at<?)"},
		"next_due":      {"_schedules_plan (plan_at>?)"},
		"stats":         {"COVERING INDEX tickslot_durable_runs_claim"},
		"list_handlers": {"COVERING INDEX tickslot_durable_runs_partition (handler=?)"},
		"history": {"COVERING INDEX tickslot_durable_runs_history (handler=? AND state=? AND finished_at>?)",
			"_retried (handler=? AND failing_since>?)", "_running (handler=?"},
	}
	for name, query := range sqlite.Statements(s) {
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, 16)...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
			if strings.HasPrefix(detail, "SCAN") && strings.Contains(detail, "_runs") &&
				!strings.Contains(detail, "INDEX") && name != "flow" { // which reads from the end of the table
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range wants[name] {
			if !strings.Contains(strings.Join(plan, "\n"), want) {
				t.Errorf("%s does not use %s:\n%s", name, want, strings.Join(plan, "\n"))
			}
		}
	}
}
