package outbox

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// sampleInterval is how often a relay reads the data for health checks and metrics.
const sampleInterval = 15 * time.Second

// A sample is the data that the sampler has read.
type sample struct {
	store.Stats
	failing []FailingTopic
}

// newSampler returns the sampler of a relay. It reads on every host, so that other hosts notice a
// relay that has stalled.
func newSampler(r *Relay) *lifecycle.Sampler[sample] {
	return lifecycle.NewSampler(sampleInterval, func() (sample, error) {
		return call(r.calls, opStats, func(ctx context.Context) (read sample, err error) {
			read.Stats, err = r.store.Stats(ctx, r.topics, r.config.OnDead == DeadStop)
			if err != nil || read.Pending == 0 {
				return read, err
			}
			topics, err := r.store.Failing(ctx)
			read.failing = failingTopics(topics)
			return read, err
		})
	})
}
