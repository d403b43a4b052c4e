package tickslotriver

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// Args returns the job for a message. An error marked by outbox.Permanent makes the message dead.
type Args func(outbox.Delivery) (river.JobArgs, *river.InsertOpts, error)

// Sink returns a sink that inserts one River job for each message, even if the message is delivered
// again. It writes the job and the message's record in the inbox in one transaction of pool. The
// inbox must be in pool's database.
func Sink(pool *pgxpool.Pool, client *river.Client[pgx.Tx], inbox *outbox.Inbox, args Args) outbox.Sink {
	return outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		job, options, err := args(d)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			fresh, err := inbox.Once(ctx, pgxoutbox.Tx(tx), "river", d.ID)
			if err != nil || !fresh {
				return err
			}
			if _, err := client.InsertTx(ctx, tx, job, options); err != nil {
				return fmt.Errorf("tickslotriver: %w", err)
			}
			return nil
		})
	})
}
