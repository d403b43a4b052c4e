package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// onPostgres returns a store on its own server, and the pool.
func onPostgres(t testing.TB) (*durable.Store, *pgxpool.Pool) {
	t.Helper()
	server := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}})
	pool, err := pgxpool.New(t.Context(), server.DSN("", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgxdurable.New(pool, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store, pool
}

// A way is one way in which an application triggers runs in its own transaction.
type way struct {
	name  string
	store *durable.Store
	begin func(ctx context.Context) (tx durable.Tx, commit, rollback func() error, err error)
}

func waysToTrigger(t testing.TB) []way {
	file, db := onFile(t)
	server, pool := onPostgres(t)
	overPgx := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = overPgx.Close() })
	return []way{
		{"database/sql on SQLite", file, func(ctx context.Context) (durable.Tx, func() error, func() error, error) {
			tx, err := db.BeginTx(ctx, nil)
			return durable.SQLTx(tx), tx.Commit, tx.Rollback, err
		}},
		{"database/sql on Postgres", server, func(ctx context.Context) (durable.Tx, func() error, func() error,
			error) {
			tx, err := overPgx.BeginTx(ctx, nil)
			return durable.SQLTx(tx), tx.Commit, tx.Rollback, err
		}},
		{"pgx", server, func(ctx context.Context) (durable.Tx, func() error, func() error, error) {
			tx, err := pool.Begin(ctx)
			return pgxdurable.Tx(tx), func() error { return tx.Commit(ctx) },
				func() error { return tx.Rollback(ctx) }, err
		}},
	}
}

// After ROLLBACK, Trigger has no effect. After COMMIT, a worker executes the run. Both hold for
// every driver of the application's transaction.
//
// Fails when Trigger does not use the transaction.
func TestTriggerInATransactionOfEachDriver(t *testing.T) {
	t.Parallel()
	for _, way := range waysToTrigger(t) {
		ctx := t.Context()
		var want []string
		for i, commits := range []bool{false, true, false, true} {
			key := fmt.Sprint(way.name, i)
			tx, commit, rollback, err := way.begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			before := len(allRuns(t, way.store))
			_, err = way.store.Trigger(ctx, tx, way.name, []byte(key), durable.TriggerOptions{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(allRuns(t, way.store)) - before; n != 0 {
				t.Errorf("%s: %d runs before the end of the transaction", way.name, n)
			}
			end := rollback
			if commits {
				end, want = commit, append(want, key)
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
		}
		if got := carriedOut(t, way, len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: the runs %q, want %q", way.name, got, want)
		}
	}
}

// carriedOut makes a worker execute the given number of runs, and returns their payloads when the
// worker has stopped.
func carriedOut(t *testing.T, way way, runs int) (payloads []string) {
	t.Helper()
	worker, err := durable.NewWorker(way.store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	worker.Handle(way.name, func(_ context.Context, run *durable.Run) error {
		mu.Lock()
		defer mu.Unlock()
		payloads = append(payloads, string(run.Payload))
		return nil
	}, durable.HandlerOptions{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	testkit.Eventually(t, testkit.Patience, "the runs succeed", func(ctx context.Context) error {
		done, err := way.store.Runs(ctx, durable.RunFilter{Handler: way.name,
			States: []durable.State{durable.StateSucceeded}}, 100)
		if err == nil && len(done) < runs {
			err = fmt.Errorf("%d of %d", len(done), runs)
		}
		return err
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := way.store.Runs(t.Context(), durable.RunFilter{Handler: way.name}, 100); len(left) != runs {
		t.Errorf("%s: %+v, %v", way.name, left, err)
	}
	slices.Sort(payloads)
	return payloads
}
