package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/schedule"
)

// Tables are created, ticks and runs triggered in transactions of pgx and of database/sql are
// executed, and payloads arrive unchanged. That holds with each mode of pgx, with unusual session
// settings (serializable transactions), with a pool of one connection and a schema whose name needs
// quotes, and behind a PgBouncer in transaction mode.
//
// Fails when a call needs a second connection of the pool, a name is not quoted, or a statement
// does not work in a mode.
func TestSetUpsOfPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}})
	if _, err := server.Exec("", `CREATE SCHEMA "We""ird Schéma"`); err != nil {
		t.Fatal(err)
	}
	sqltest.StrangePostgres(t, server, "postgres")
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec}
	modes = modes[:testkit.Rounds(t, 1, len(modes))]
	for _, dsn := range []string{server.DSN("", "", ""), sqltest.PgBouncer(t, server, "transaction").DSN("", "", "")} {
		for _, mode := range modes {
			bouncer := dsn != server.DSN("", "", "")
			if bouncer && (mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec) {
				continue // pgx documents that these modes do not work with PgBouncer
			}
			what := fmt.Sprintf("%v, PgBouncer %t", mode, bouncer)
			config, err := pgxpool.ParseConfig(dsn)
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.DefaultQueryExecMode, config.MaxConns = mode, 1
			if err := setUp(t, config, what); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// setUp makes a worker execute ticks and runs triggered in each kind of transaction.
func setUp(t *testing.T, config *pgxpool.Config, name string) error {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	store := pgxdurable.New(pool, durable.Options{Schema: `We"ird Schéma`, TableName: name})
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	const payload = "\x00\xff'\\"
	trigger := func(tx durable.Tx) error {
		_, err := store.Trigger(ctx, tx, "h", []byte(payload), durable.TriggerOptions{RunAt: time.Now()})
		return err
	}
	if err := trigger(nil); err != nil {
		return err
	}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			return trigger(pgxdurable.Tx(tx))
		})
		if err != nil {
			return err
		}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		err = trigger(durable.SQLTx(tx))
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return err
	}
	worker, err := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan string, 1000)
	worker.Handle("h", func(_ context.Context, run *durable.Run) error {
		called <- string(run.Payload)
		return nil
	}, durable.HandlerOptions{MaxConcurrency: 2})
	worker.Schedule("s", "h", schedule.Every(100*time.Millisecond), durable.ScheduleOptions{Payload: []byte(payload)})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	for range 8 {
		select {
		case got := <-called:
			if got != payload {
				t.Errorf("%s: the payload %q", name, got)
			}
		case <-ctx.Done():
			t.Errorf("%s: a run is missing", name)
		}
	}
	stop()
	return <-ended
}
