package durable

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/loop"
)

const (
	// sampleInterval is how often a worker asks for what health and metrics show.
	sampleInterval = 30 * time.Second
	sampleJitter   = 0.2
)

// A sampler reads what health and metrics show of the fleet, so that a probe or a scrape costs the
// database nothing.
type sampler struct {
	*loop.Loop
	store    store.Worker
	database *database

	mu     sync.Mutex // of all readers
	stats  store.Stats
	readAt time.Time // zero: never
}

// sample is a step of the loop.
func (s *sampler) sample() time.Duration {
	stats, err := call(s.database, opStats, func(ctx context.Context) (store.Stats, error) {
		return s.store.Stats(ctx, unseenAfter)
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
