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
	read   sample
	readAt time.Time // zero: never
}

// A sample is what was read.
type sample struct {
	store.Stats
	failing []FailingTopic
}

func newSampler(r *Relay) *sampler {
	s := &sampler{relay: r}
	s.Loop = loop.New("sampler", sampleInterval, sampleJitter, s.sample)
	return s
}

// sample is a step of the loop.
func (s *sampler) sample() time.Duration {
	read, err := call(s.relay.calls, opStats, func(ctx context.Context) (read sample, err error) {
		read.Stats, err = s.relay.store.Stats(ctx, s.relay.topics, s.relay.config.OnDead == DeadStop)
		if err != nil || read.Pending == 0 {
			return read, err
		}
		topics, err := s.relay.store.Failing(ctx)
		read.failing = failingTopics(topics)
		return read, err
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.read, s.readAt = read, time.Now()
	}
	return loop.Never
}

// latest returns what was read last, and reports false if that is too old to say anything.
func (s *sampler) latest() (read sample, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read, !s.readAt.IsZero() && time.Since(s.readAt) < 4*sampleInterval
}
