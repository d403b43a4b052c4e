package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// sampleInterval is how often a relay asks for what health and metrics show.
const (
	sampleInterval = 15 * time.Second
	sampleJitter   = 0.2
)

// A sampler reads what health and metrics show, on every host, so that a probe or a scrape costs
// the database nothing, and a relay that has stalled is seen by the others.
type sampler struct {
	*loop.Loop
	relay *Relay

	mu     sync.Mutex // of all readers
	stats  store.Stats
	readAt time.Time // zero: never
}

func newSampler(r *Relay) *sampler {
	s := &sampler{relay: r}
	s.Loop = loop.New("sampler", sampleInterval, sampleJitter, s.sample)
	return s
}

// sample is a step of the loop.
func (s *sampler) sample() time.Duration {
	stats, err := call(s.relay.calls, opStats, func(ctx context.Context) (store.Stats, error) {
		return s.relay.store.Stats(ctx, s.relay.topics, s.relay.config.OnDead == DeadStop)
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stats, s.readAt = stats, time.Now()
	}
	return loop.Never
}

// latest returns what was read last, and reports false if that is too old to say anything.
func (s *sampler) latest() (stats store.Stats, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats, !s.readAt.IsZero() && time.Since(s.readAt) < 4*sampleInterval
}
