package durable

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/retention"
)

const (
	sweepBatch = 1000
	sweepPause = 200 * time.Millisecond // between full batches: faster than runs can end
)

// newSweeper returns a sweeper that deletes old rows.
func newSweeper(c Config, s store.Worker, d *database) *retention.Sweeper {
	keep := func(d time.Duration) time.Duration { return max(0, d) } // NoLimit
	old := store.Retention{Succeeded: keep(c.Retention.Succeeded), Dead: keep(c.Retention.Dead),
		Canceled: keep(c.Retention.Canceled), Unseen: keep(c.Retention.Unseen)}
	return &retention.Sweeper{Interval: c.SweepInterval, Pause: min(sweepPause, c.SweepInterval), Batch: sweepBatch,
		Delete: func(ctx context.Context, limit int) (int, error) {
			return call(d, opSweep, func(ctx context.Context) (int, error) { return s.Sweep(ctx, old, limit) })
		}}
}
