package durable

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts has the counters of a handler on this worker.
type counts struct {
	mu        sync.Mutex // used by all parts
	attempts  map[Outcome]uint64
	discarded uint64              // results that did not count
	losses    uint64              // lost leases
	duration  prometheus.Observer // of attempts, in seconds; nil: no metrics
	delay     prometheus.Observer // from due to claimed, in seconds; nil: no metrics
}

// started counts an attempt. delay is the time between its due time and its claim.
func (c *counts) started(delay time.Duration) {
	if c.delay != nil {
		c.delay.Observe(delay.Seconds())
	}
}

// ended counts an attempt whose result is in the database.
func (c *counts) ended(outcome Outcome, counted bool, took time.Duration) {
	if c.duration != nil && outcome != OutcomeInterrupted {
		c.duration.Observe(took.Seconds())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !counted {
		c.discarded++
		return
	}
	if c.attempts == nil {
		c.attempts = map[Outcome]uint64{}
	}
	c.attempts[outcome]++
}

func (c *counts) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses++
}

func (c *counts) read() (attempts map[Outcome]uint64, discarded, losses uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.attempts), c.discarded, c.losses
}

// ticksCounts counts the ticks of a schedule that this worker has materialized, by their outcome.
type ticksCounts struct {
	mu  sync.Mutex // used by all parts
	sum TickCounts
}

func (t *ticksCounts) add(m TickCounts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Queued += m.Queued
	t.sum.Coalesced += m.Coalesced
	t.sum.Skipped += m.Skipped
	t.sum.PausedTicks += m.PausedTicks
}

func (t *ticksCounts) read() TickCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}
