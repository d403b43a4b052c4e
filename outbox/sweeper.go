package outbox

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/internal/retention"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	sweepBatch = 1000
	sweepPause = time.Second
)

// newSweeper returns a sweeper that deletes old rows.
func newSweeper(r *Relay) *retention.Sweeper {
	keep := func(d time.Duration) time.Duration { return max(0, d) } // NoLimit
	c := r.config
	old := store.Retention{Dispatched: keep(c.Retention.Dispatched), Dead: keep(c.Retention.Dead),
		Inbox: keep(c.InboxRetention)}
	return &retention.Sweeper{Interval: c.SweepInterval, Pause: min(sweepPause, c.SweepInterval), Batch: sweepBatch,
		Delete: func(ctx context.Context, limit int) (int, error) {
			return call(r.calls, opSweep, func(ctx context.Context) (int, error) {
				return r.store.Sweep(ctx, old, limit)
			})
		}}
}

// leadsFirst reports whether this relay leads the first shard. Then it sweeps for all shards.
func (r *Relay) leadsFirst() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shards[0] != nil
}
