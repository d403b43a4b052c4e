package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// While handlers run, the database is restored from an older copy, which then assigns the same IDs
// and attempt numbers to other runs. Those runs are executed, by this worker or another, and the
// results of the earlier handlers do not count for them.
//
// Fails when only the ID and the attempt identify a result, so that a run succeeds without a call
// of its handler, or when a worker confuses a new run with the run that it has.
func TestDatabaseThatIsPutBack(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}})
	for name, others := range map[string]bool{"the same worker claims": false, "another worker claims": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			putBack(t, server, others)
		})
	}
}

func putBack(t *testing.T, server *sqltest.Server, others bool) {
	const runs = 4
	name := server.NewDatabase(t)
	admin := func(sql string) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, sql, func(context.Context) error {
			_, err := server.Exec("", sql)
			return err
		})
	}
	open := func() (*pgxpool.Pool, *durable.Store) {
		pool, err := pgxpool.New(t.Context(), server.DSN("", "", name))
		if err != nil {
			t.Fatal(err)
		}
		return pool, pgxdurable.New(pool, durable.Options{})
	}
	pool, store := open()
	err := store.Migrate(t.Context())
	pool.Close()
	if err != nil {
		t.Fatal(err)
	}
	admin(fmt.Sprintf("CREATE DATABASE %s_copy TEMPLATE %s", name, name))
	defer admin(fmt.Sprintf("DROP DATABASE %s_copy", name))
	pool, store = open()
	defer pool.Close()

	var mu sync.Mutex
	started, returned, lost := map[string]int{}, map[string]bool{}, 0 // by payload, key
	release := map[string]chan struct{}{"old": make(chan struct{}), "new": make(chan struct{}),
		"probe": make(chan struct{})}
	close(release["probe"])
	handler := func(ctx context.Context, run *durable.Run) error {
		mu.Lock()
		started[string(run.Payload)]++
		mu.Unlock()
		<-release[string(run.Payload)] // wait even if the context has ended
		mu.Lock()
		defer mu.Unlock()
		returned[run.Key] = true
		if ctx.Err() != nil {
			lost++
		}
		return nil
	}
	start := func(places int) (stop func()) {
		worker, err := durable.NewWorker(store, durable.Config{MaxRuns: places, PollInterval: 100 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		worker.Handle("h", handler, durable.HandlerOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	trigger := func(payload string) (id int64) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "a run is triggered", func(ctx context.Context) (err error) {
			id, err = store.Trigger(ctx, nil, "h", []byte(payload), durable.TriggerOptions{})
			return err
		})
		return id
	}
	wait := func(payload string, n int) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, payload+" runs start", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if started[payload] != n {
				return fmt.Errorf("%d of %d", started[payload], n)
			}
			return nil
		})
	}
	states := func(state string) (n int) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "the database answers", func(ctx context.Context) error {
			return pool.QueryRow(ctx, "SELECT count(*) FROM tickslot_durable_runs WHERE state = $1", state).Scan(&n)
		})
		return n
	}

	places := runs
	if !others {
		places = 2 * runs
	}
	defer start(places)()
	before := map[int64]bool{}
	for range runs {
		before[trigger("old")] = true
	}
	wait("old", runs)
	admin(fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name))
	admin(fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s_copy", name, name))
	for range runs {
		if id := trigger("new"); !before[id] {
			t.Errorf("the ID %d was not assigned before, so this test proves nothing", id)
		}
	}
	if others {
		defer start(runs)()
	}
	wait("new", runs)
	close(release["old"])
	trigger("probe")
	wait("probe", 1) // proves that a place is free: the earlier results were written or dropped
	if n := states("succeeded"); n > 1 {
		t.Errorf("%d runs have succeeded, and no handler has returned for %d of them", n, n-1)
	}
	close(release["new"])
	testkit.Eventually(t, testkit.Patience, "all have succeeded", func(ctx context.Context) error {
		if n := states("succeeded"); n != runs+1 {
			return fmt.Errorf("%d of %d", n, runs+1)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if len(returned) != 2*runs+1 {
		t.Errorf("%d keys of %d runs", len(returned), 2*runs+1)
	}
	if !others && lost != runs {
		t.Errorf("the contexts of %d earlier attempts had ended, want %d", lost, runs)
	}
}
