package timer

import (
	"sync"
	"time"
)

// A tally has the counts of all timers with one value of the label timer, which only the metrics
// need. It outlives the timers that leave while others stay: if their counts went, Prometheus would
// take the smaller sum for a counter that was reset, and report its whole value as an increase.
type tally struct {
	label   string
	classic bool // the histograms have fixed bounds, which every observation passes
	timers  int  // that count here; guarded by registry.mu

	// mu guards the rest. No other mutex is taken while it is held.
	mu        sync.Mutex
	createdAt time.Time
	started   uint64
	skipped   map[Reason]uint64
	triggers  map[string]uint64 // by result
	runs      map[Outcome]uint64
	lag       histogram // of ticks that started
	took      histogram // of runs

	retries, fallbackRuns, overlongHolds, leasesLost uint64
}

// bounds returns the bounds of a histogram; nil: it is native.
func (t *tally) bounds(classic []float64) []float64 {
	if t.classic {
		return classic
	}
	return nil
}

// count calls add with mu held; nothing if there are no metrics.
func (t *tally) count(add func(*tally)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	add(t)
}

func (t *tally) began(r *Run) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.tick != 0 {
		t.started++
		lag := max(0, r.startedAt.Sub(time.UnixMicro(r.tick)))
		t.lag.observe(t.bounds(callBounds), lag.Seconds())
	}
	if r.Degraded() {
		t.fallbackRuns++
	}
}

func (t *tally) ended(outcome Outcome, took time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = make(map[Outcome]uint64)
	}
	t.runs[outcome]++
	t.took.observe(t.bounds(runBounds), took.Seconds())
}

func (t *tally) skip(reason Reason, n uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.skipped == nil {
		t.skipped = make(map[Reason]uint64)
	}
	t.skipped[reason] += n
}

func (t *tally) triggered(result string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.triggers == nil {
		t.triggers = make(map[string]uint64)
	}
	t.triggers[result]++
}
