package timer

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// SetSkew sets the clock of one host ahead by d, or back if d is negative. Ticks are due by this
// clock.
func SetSkew(s *Scheduler, d time.Duration) { s.planner.clock.skew.Store(int64(d)) }

// Poke makes the scheduling goroutine read its clock immediately.
func Poke(s *Scheduler) { s.planner.bell.ring() }

// Remembered returns how many ticks of a timer the ring holds.
func Remembered(s *Scheduler, name string) (n int) {
	e := s.registry.get(name).entry
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.record.history.decisions)
}

// TakeTrigger makes a host take the oldest trigger of a timer without starting its run.
func TakeTrigger(t *testing.T, store driver.Controller, timer string, host dlock.Holder) {
	queues := fleet.Queues{Store: store, Timeout: time.Second}
	err := queues.Change(t.Context(), timer, func(q *fleet.Queue, _ int64) (bool, error) {
		q.Triggers[0].Taker, q.Triggers[0].Host = "another", host
		return false, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// These defaults are exported for calculations in tests.
const (
	DefaultMaxRunTime   = defaultMaxRunTime
	DefaultDrainTimeout = defaultDrainTimeout
)
