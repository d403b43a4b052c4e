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

// Sink returns a sink that inserts one job of River for each message, also if it is delivered
// again: the job and the record of the message in the inbox are written in one transaction of pool.
// The inbox has to be in the database of pool.
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
