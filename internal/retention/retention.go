// Package retention deletes rows that are older than their retention, in batches. Each host that
// shares a store does so at random times, without coordination.
//
// It keeps no state in the store and needs no leader. If one host does not delete its rows, because
// it stops or the store fails, another host does. Repeating a batch is harmless.
package retention

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
)

// A Sweeper deletes the old rows of one store. Set its exported fields before use. Rows may be
// called from any goroutine, the other methods from one goroutine at a time.
type Sweeper struct {
	// Interval is the average time between two sweeps of all hosts together.
	Interval time.Duration
	// Pause is the time between a full batch and the next one.
	Pause time.Duration
	// Batch is the maximum number of rows that one call of Delete may delete, so that no statement
	// locks many.
	Batch int
	// Delete deletes up to limit rows that are too old by the store's clock, and returns their
	// number. It bounds its own duration.
	Delete func(ctx context.Context, limit int) (deleted int, err error)

	more bool // the last batch was full
	rows atomic.Uint64
}

// Next returns how long to wait before the next call of Once, with the given number of hosts
// sharing the work. After a full batch that is about Pause. Otherwise it is random: on average the
// number of hosts times Interval, but at least half an Interval. So even if all hosts start at the
// same time, some host sweeps soon.
func (s *Sweeper) Next(hosts int) time.Duration {
	if s.more {
		return s.Pause/2 + rand.N(max(1, s.Pause))
	}
	least := s.Interval / 2
	return least + rand.N(max(1, s.Longest(hosts)-least))
}

// Longest returns the upper bound of Next after a batch that was not full.
func (s *Sweeper) Longest(hosts int) time.Duration {
	most := math.MaxInt64 / 2 / max(1, s.Interval)
	return 2*s.Interval*min(max(1, time.Duration(hosts)), most) - s.Interval/2
}

// Once deletes one batch. A panic in Delete becomes an error.
func (s *Sweeper) Once(ctx context.Context) (err error) {
	s.more = false
	n := 0
	err = guard.Call("Delete", func() (err error) { n, err = s.Delete(ctx, s.Batch); return err })
	if n > 0 {
		s.rows.Add(uint64(n))
	}
	s.more = err == nil && n >= s.Batch
	return err
}

// Run deletes batches until ctx ends, as often as a single host would. mine reports whether it is
// this host's turn. If mine is nil, it always is.
func (s *Sweeper) Run(ctx context.Context, mine func() bool) {
	for lifecycle.Sleep(ctx, s.Next(1)) {
		if mine == nil || mine() {
			_ = s.Once(ctx) // Delete counts its failures, and the next batch follows
		}
	}
}

// More reports whether the last batch was full, so that the next one is due soon.
func (s *Sweeper) More() bool { return s.more }

// Rows returns the number of rows deleted so far.
func (s *Sweeper) Rows() uint64 { return s.rows.Load() }
