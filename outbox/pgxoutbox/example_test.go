package pgxoutbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// Either both the order and the message about it are committed, or neither is.
func ExampleTx() {
	place := func(ctx context.Context, pool *pgxpool.Pool, box *outbox.Outbox, id string, order []byte) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id, body) VALUES ($1, $2)", id, order); err != nil {
				return err
			}
			_, err := box.Append(ctx, pgxoutbox.Tx(tx), outbox.Message{ID: outbox.NewID(id, 1, 0),
				Topic: "invoice.create", Key: id, Payload: order})
			return err
		})
	}
	_ = place
}

// The pool belongs to the application. Relays have a few separate connections with the settings of
// the pool.
func ExampleNew() {
	run := func(ctx context.Context, pool *pgxpool.Pool, invoices outbox.Sink) error {
		box := pgxoutbox.New(pool, outbox.Options{})
		defer box.Close()
		if err := box.Migrate(ctx); err != nil {
			return err
		}
		relay, err := outbox.NewRelay(box, outbox.RelayConfig{
			Sinks: map[string]outbox.Sink{"invoice.create": invoices}})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}
	_ = run
}
