package pgxdurable_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/schedule"
)

// Either both the order and its run are committed, or neither is.
func ExampleTx() {
	place := func(ctx context.Context, pool *pgxpool.Pool, store *durable.Store, order []byte) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (body) VALUES ($1)", order); err != nil {
				return err
			}
			_, err := store.Trigger(ctx, pgxdurable.Tx(tx), "invoice", order, durable.TriggerOptions{})
			return err
		})
	}
	_ = place
}

// The pool belongs to the application. Workers have a few separate connections with the settings of
// the pool.
func ExampleNew() {
	run := func(ctx context.Context, pool *pgxpool.Pool, invoice, report durable.Handler) error {
		store := pgxdurable.New(pool, durable.Options{})
		if err := store.Migrate(ctx); err != nil {
			return err
		}
		worker, err := durable.NewWorker(store, durable.Config{})
		if err != nil {
			return err
		}
		worker.Handle("invoice", invoice, durable.HandlerOptions{MaxConcurrency: 3}) // in the fleet
		worker.Handle("report", report, durable.HandlerOptions{})
		worker.Schedule("daily-report", "report", schedule.Daily("07:00", "Europe/Berlin"),
			durable.ScheduleOptions{})
		return worker.Run(ctx) // drains when ctx ends
	}
	_ = run
}
