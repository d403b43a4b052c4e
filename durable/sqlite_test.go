package durable_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
)

var ann = driver.Cause{By: "Ann", Note: "stocktaking"}

// onFile returns a store in a new file, and its pool.
func onFile(t testing.TB) (*durable.Store, *sql.DB) {
	t.Helper()
	db := openSQLite(t, "file:"+filepath.Join(t.TempDir(), "durable.db")+"?_pragma=synchronous(off)")
	store := durable.SQLite(db, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store, db
}

func openSQLite(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// allRuns returns all runs of a store.
func allRuns(t testing.TB, store *durable.Store) []durable.RunRecord {
	t.Helper()
	runs, err := store.Runs(t.Context(), durable.RunFilter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// A run belongs to the transaction that triggers it: COMMIT queues the run, and ROLLBACK leaves
// nothing.
//
// Fails when Trigger does not use the transaction.
func TestTriggerBelongsToTheTransaction(t *testing.T) {
	t.Parallel()
	store, db := onFile(t)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE sales (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	for _, commit := range []bool{false, true} {
		tx := begin(t, db)
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO sales VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		id, err := store.Trigger(t.Context(), durable.SQLTx(tx), "report", []byte("p"), durable.TriggerOptions{By: ann})
		if err != nil || id == 0 {
			t.Fatal(id, err)
		}
		if runs := allRuns(t, store); len(runs) != 0 {
			t.Errorf("before the end of the transaction there are %+v", runs)
		}
		end, want := tx.Rollback, 0
		if commit {
			end, want = tx.Commit, 1
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		runs := allRuns(t, store)
		var sales int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sales").Scan(&sales); err != nil {
			t.Fatal(err)
		}
		if len(runs) != want || sales != want {
			t.Errorf("commit %t: %d sales, and the runs %+v", commit, sales, runs)
		}
	}
	// The handler does not have to be known, and payloads may be nil or have the maximum length.
	for _, payload := range [][]byte{nil, make([]byte, durable.MaxPayloadLen)} {
		id, err := store.Trigger(t.Context(), nil, "nobody's", payload, durable.TriggerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if run, err := store.Run(t.Context(), id); err != nil || !bytes.Equal(run.Payload, payload) ||
			run.PayloadLen != len(payload) {
			t.Errorf("run %d: %d bytes, %v", id, run.PayloadLen, err)
		}
	}
}

// named reports whether an error has the prefix of package durable exactly once.
func named(err error) bool {
	return strings.HasPrefix(err.Error(), "durable: ") && strings.Count(err.Error(), "durable: ") == 1
}

// Triggers that cannot be queued are refused, both inside and outside a transaction, and leave
// nothing.
func TestTriggerRefusesBadInput(t *testing.T) {
	t.Parallel()
	store, db := onFile(t)
	ended := begin(t, db)
	_ = ended.Rollback()
	elsewhere := begin(t, openSQLite(t, "file:"+filepath.Join(t.TempDir(), "other.db")))
	const good = "report"
	for _, step := range []struct {
		handler string
		payload []byte
		tx      durable.Tx
		options durable.TriggerOptions
		want    string
	}{
		{"", nil, nil, durable.TriggerOptions{}, "empty"},
		{strings.Repeat("a", 201), nil, nil, durable.TriggerOptions{}, "201 bytes"},
		{"\xff", nil, nil, durable.TriggerOptions{}, "UTF-8"},
		{"a\nb", nil, nil, durable.TriggerOptions{}, "control"},
		{good, make([]byte, 10_000_000), nil, durable.TriggerOptions{}, "10000000 bytes"},
		{good, nil, nil, durable.TriggerOptions{Key: strings.Repeat("k", 201)}, "Key"},
		{good, nil, nil, durable.TriggerOptions{Priority: 2}, "Priority"},
		{good, nil, nil, durable.TriggerOptions{MaxAttempts: -1}, "MaxAttempts"},
		{good, nil, nil, durable.TriggerOptions{RunIn: -1}, "RunIn"},
		{good, nil, nil, durable.TriggerOptions{RunIn: 1, RunAt: time.Now()}, "use one of them"},
		{good, nil, nil, durable.TriggerOptions{RunAt: time.Unix(1<<40, 0)}, "years"},
		{good, nil, nil, durable.TriggerOptions{By: driver.Cause{Note: "why"}}, "By"},
		{good, nil, durable.SQLTx(nil), durable.TriggerOptions{}, "nil *sql.Tx"},
		{good, nil, durable.SQLTx(ended), durable.TriggerOptions{}, "committed or rolled back"},
		{good, nil, durable.SQLTx(elsewhere), durable.TriggerOptions{}, "call Migrate"},
	} {
		id, err := store.Trigger(t.Context(), step.tx, step.handler, step.payload, step.options)
		if err == nil || id != 0 || !strings.Contains(err.Error(), step.want) || !named(err) {
			t.Errorf("handler %.20q: %d, %v, want %q", step.handler, id, err, step.want)
		}
		if tooLong := len(step.payload) > 0; errors.Is(err, durable.ErrPayloadTooLong) != tooLong {
			t.Errorf("%v: too long %t", err, tooLong)
		}
	}
	if runs := allRuns(t, store); len(runs) != 0 {
		t.Errorf("%+v", runs)
	}
}

// Every method of a store with a fault returns the fault and does not panic. Without tables, every
// method says what to do, and Run returns.
func TestStoreThatCannotBe(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, "file::memory:")
	for want, store := range map[string]*durable.Store{
		"no *sql.DB":   durable.SQLite(nil, durable.Options{}),
		"SQLite has":   durable.SQLite(db, durable.Options{Schema: "public"}),
		"no store":     nil,
		"is no store:": {},
		"braces":       durable.SQLite(db, durable.Options{TableName: "{a}"}),
	} {
		_, triggered := store.Trigger(t.Context(), nil, "report", nil, durable.TriggerOptions{})
		_, runs := store.Runs(t.Context(), durable.RunFilter{}, 1)
		_, run := store.Run(t.Context(), 1)
		_, schedules := store.Schedules(t.Context())
		_, handlers := store.Handlers(t.Context())
		_, schema := store.Schema()
		store.Notify() // has no effect
		for i, err := range []error{triggered, runs, run, schedules, handlers, schema, store.Verify(t.Context()),
			store.Migrate(t.Context()),
			store.Control().Pause(t.Context(), "report", time.Now().Add(time.Hour), ann)} {
			if err == nil || !strings.Contains(err.Error(), want) || !named(err) {
				t.Errorf("%d: %v, want %q", i, err, want)
			}
		}
	}
	store := durable.SQLite(db, durable.Options{})
	_, triggered := store.Trigger(t.Context(), nil, "report", nil, durable.TriggerOptions{})
	worker, err := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("report", func(context.Context, *durable.Run) error { return nil }, durable.HandlerOptions{})
	for _, err := range []error{triggered, store.Verify(t.Context()), worker.Run(t.Context()),
		store.Control().Resume(t.Context(), "report", ann)} {
		if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "call Migrate") || !named(err) {
			t.Errorf("without tables: %v", err)
		}
	}
}

// A worker works on an in-memory database with a single connection, as in tests of users.
func TestWorkerInMemory(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, "file::memory:")
	db.SetMaxOpenConns(1)
	store := durable.SQLite(db, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker, err := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	worker.Handle("report", func(_ context.Context, run *durable.Run) error {
		if run.Attempt == 1 {
			return durable.RetryAfter(0, errors.New("once more"))
		}
		got = string(run.Payload)
		return nil
	}, durable.HandlerOptions{MaxConcurrency: 1})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	tx := begin(t, db)
	id, err := store.Trigger(t.Context(), durable.SQLTx(tx), "report", []byte("p"), durable.TriggerOptions{})
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	store.Notify() // wakes the worker in this process
	testkit.Eventually(t, testkit.Patience, "the run succeeds", func(ctx context.Context) error {
		run, err := store.Run(ctx, id)
		if err == nil && run.State != durable.StateSucceeded {
			err = fmt.Errorf("%+v", run)
		}
		return err
	})
	stop()
	if err := <-ended; err != nil || got != "p" {
		t.Errorf("Run: %v, and the handler got %q", err, got)
	}
}

// Programs in other languages read the records as JSON, so the names of the fields must not change.
func TestRecordsAreJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pause := &durable.PauseRecord{Cause: ann, Until: at}
	for want, record := range map[string]any{
		`{"id":1,"handler":"h","state":"queued","priority":0,"run_at":"2026-01-02T03:04:05Z","attempt":0,` +
			`"key":"run:1","payload_bytes":0,"enqueued_at":"2026-01-02T03:04:05Z"}`: durable.RunRecord{ID: 1,
			Handler: "h", State: durable.StateQueued, RunAt: at, Key: "run:1", EnqueuedAt: at},
		`{"id":1,"handler":"h","schedule":"s","due_at":"2026-01-02T03:04:05Z","backfill":true,"state":"dead",` +
			`"priority":-1,"run_at":"2026-01-02T03:04:05Z","attempt":2,"max_attempts":2,"key":"k","payload_bytes":1,` +
			`"triggered_by":{"by":"Ann","note":"stocktaking"},"canceled_by":{"by":"Ann","note":"stocktaking"},` +
			`"worker":"w","claimed_at":"2026-01-02T03:04:05Z","lease_until":"2026-01-02T03:04:05Z","last_error":"no",` +
			`"enqueued_at":"2026-01-02T03:04:05Z","finished_at":"2026-01-02T03:04:05Z","payload":"cA==","attempts":[` +
			`{"attempt":1,"worker":"w","started_at":"2026-01-02T03:04:05Z","finished_at":"2026-01-02T03:04:05Z",` +
			`"outcome":"error","error":"no"}]}`: durable.RunRecord{ID: 1, Handler: "h", Schedule: "s", DueAt: at,
			Backfill: true, State: durable.StateDead, Priority: durable.PriorityHigh, RunAt: at, Attempt: 2,
			MaxAttempts: 2, Key: "k", PayloadLen: 1, TriggeredBy: ann, CanceledBy: ann, Worker: "w", ClaimedAt: at,
			LeaseUntil: at, LastError: "no", EnqueuedAt: at, FinishedAt: at, Payload: []byte("p"),
			Attempts: []durable.AttemptRecord{
				{Attempt: 1, Worker: "w", StartedAt: at, FinishedAt: at, Outcome: durable.OutcomeFailed, Error: "no"}}},
		`{"name":"h","max_concurrency":0,"queued":1,"running":2,"dead":3}`: durable.HandlerRecord{Name: "h", Queued: 1,
			Running: 2, Dead: 3},
		`{"name":"h","max_concurrency":4,"max_per_partition":3,"rate":2,"per_ns":60000000000,"queued":0,"running":0,` +
			`"dead":0}`: durable.HandlerRecord{Name: "h", MaxConcurrency: 4, MaxPerPartition: 3, Rate: 2, Per: time.Minute},
		`{"name":"","max_concurrency":3,"override":{"by":"Ann","note":"stocktaking","limit":0},"pause":{"by":"Ann",` +
			`"note":"stocktaking","until":"2026-01-02T03:04:05Z"},"seen_at":"2026-01-02T03:04:05Z","queued":0,` +
			`"running":0,"dead":0}`: durable.HandlerRecord{MaxConcurrency: 3,
			Override: &durable.LimitRecord{Cause: ann}, Pause: pause, SeenAt: at},
		`{"name":"s","ticks_queued":1,"ticks_coalesced":2,"ticks_skipped":3,"ticks_paused":4}`: durable.ScheduleRecord{
			Name: "s", TickCounts: durable.TickCounts{Queued: 1, Coalesced: 2, Skipped: 3, PausedTicks: 4}},
		`{"name":"s","handler":"h","text":"daily","next_due_at":"2026-01-02T03:04:05Z","last_due_at":` +
			`"2026-01-02T03:04:05Z","seen_at":"2026-01-02T03:04:05Z","pause":{"by":"Ann","note":"stocktaking",` +
			`"until":"2026-01-02T03:04:05Z"},"ticks_queued":0,"ticks_coalesced":0,"ticks_skipped":0,` +
			`"ticks_paused":0}`: durable.ScheduleRecord{Name: "s", Handler: "h", Text: "daily", NextDueAt: at,
			LastDueAt: at, SeenAt: at, Pause: pause},
	} {
		text, err := json.Marshal(record)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v\nwant %s", text, err, want)
		}
	}
}
