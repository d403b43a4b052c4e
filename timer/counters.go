package timer

import (
	"sync"
	"time"
)

// A tally has the counts that only the metrics need: of one timer, or of all that have the same
// label. It outlives timers that leave while others with its label stay: if their counts went,
// Prometheus would take the smaller sum for a counter that was reset, and report its whole value as
// an increase. A nil *tally counts nothing.
type tally struct {
	label   string // "": of one timer
	classic bool   // the histograms have fixed bounds
	timers  int    // that have the label; guarded by registry.mu

	// mu guards the rest. No other mutex is taken while it is held.
	mu        sync.Mutex
	createdAt time.Time
	started   uint64
	skipped   counts    // by reason
	runs      counts    // by outcome
	triggers  counts    // by result
	lag       histogram // of ticks that started
	took      histogram // of runs

	retries, fallbackRuns, overlongHolds, leasesLost uint64
}

// counts are numbers by name. Most timers have one or two, for which a map would be large.
type counts []struct {
	name string
	n    uint64
}

func (c *counts) add(name string, n uint64) {
	for i := range *c {
		if (*c)[i].name == name {
			(*c)[i].n += n
			return
		}
	}
	*c = append(*c, struct {
		name string
		n    uint64
	}{name, n})
}

// of returns the number of a name.
func (c counts) of(name string) uint64 {
	for _, each := range c {
		if each.name == name {
			return each.n
		}
	}
	return 0
}

// bounds returns the bounds of a histogram; nil: it is native.
func (t *tally) bounds(classic []float64) []float64 {
	if t.classic {
		return classic
	}
	return nil
}

// count calls add with mu held.
func (t *tally) count(add func(*tally)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	add(t)
}

func (t *tally) began(r *Run) {
	t.count(func(t *tally) {
		if r.tick != 0 {
			t.started++
		}
		if r.tick != 0 && !r.onStart { // the tick of RunOnStart may be of last week
			lag := max(0, r.startedAt.Sub(time.UnixMicro(r.tick)))
			t.lag.observe(t.bounds(callBounds), lag.Seconds())
		}
		if r.Degraded() {
			t.fallbackRuns++
		}
	})
}

func (t *tally) ended(outcome Outcome, took time.Duration) {
	t.count(func(t *tally) {
		t.runs.add(string(outcome), 1)
		t.took.observe(t.bounds(runBounds), took.Seconds())
	})
}

func (t *tally) skip(reason Reason, n uint64) {
	t.count(func(t *tally) { t.skipped.add(resultOf(reason), n) })
}
