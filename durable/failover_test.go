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

// When the primary is killed and a synchronous standby takes over, no committed run is lost and no
// worker has to be restarted. The URL of the pool names both servers.
//
// Fails when a worker keeps using connections to a server that is gone.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	primary := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}})
	standby := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off", "synchronous_standby_names="},
		StandbyOf: primary})
	_, err := primary.Exec("", "ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()")
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(primary.DSN("", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	both, err := pgxpool.ParseConfig(fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s password=%s "+
		"dbname=postgres sslmode=disable target_session_attrs=read-write", primary.Port(), standby.Port(),
		config.ConnConfig.User, config.ConnConfig.Password))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), both)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store := pgxdurable.New(pool, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker, err := durable.NewWorker(store, durable.Config{TTL: 6 * time.Second, PollInterval: time.Second,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	done := map[int64]bool{}
	worker.Handle("h", func(ctx context.Context, run *durable.Run) error {
		mu.Lock()
		defer mu.Unlock()
		done[run.ID] = true
		return ctx.Err()
	}, durable.HandlerOptions{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	var committed []int64
	trigger := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		id, err := store.Trigger(ctx, nil, "h", nil, durable.TriggerOptions{
			RunIn: time.Duration(len(committed)%200) * 20 * time.Millisecond}) // most are due after the failover
		if err == nil {
			committed = append(committed, id)
		}
		return err
	}
	for range 200 {
		if err := trigger(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := standby.Exec("", "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "runs can be triggered again", trigger)
	testkit.Eventually(t, testkit.Patience, "all runs are carried out", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range committed {
			if !done[id] {
				return fmt.Errorf("run %d of %d is missing", id, len(committed))
			}
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
