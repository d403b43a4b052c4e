package outbox

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/internal/retention"
	"github.com/tickslot/tickslot/internal/service"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	sweepBatch = 1000
	sweepPause = time.Second
)

// newSweeper returns what deletes old rows.
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

// sweep deletes old rows while this relay leads the first shard, until ctx ends.
func (r *Relay) sweep(ctx context.Context) {
	for service.Sleep(ctx, r.sweeper.Next(1)) {
		r.mu.Lock()
		leads := r.shards[0] != nil
		r.mu.Unlock()
		if leads {
			_ = r.sweeper.Once(ctx) // a call that fails is counted, and the next one comes
		}
	}
}
