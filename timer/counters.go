package timer

import (
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A tally is the part of a record that only the metrics need.
type tally struct {
	lag           histogram // of ticks that started
	retries       uint64
	fallbackRuns  uint64
	took          histogram // of runs that ended with OutcomeOK
	createdAt     time.Time
	ran           []ranTally // with another outcome
	overlongHolds uint64
	leasesLost    uint64
	leasesExpired uint64
	shared        *sharedTally // nil: the store was not called yet
}

// A ranTally is for runs with one outcome. Most timers have few outcomes.
type ranTally struct {
	outcome Outcome
	took    histogram
}

// A sharedTally is for timers whose limits are in the store.
type sharedTally struct {
	acquisitions map[string]uint64 // by result
	beats        [dlock.GrantLost + 1]uint64
	held         histogram
}

func (t *tally) ended(outcome Outcome, took time.Duration) {
	if outcome == OutcomeOK {
		t.took.observe(runBounds, took)
		return
	}
	i := slices.IndexFunc(t.ran, func(r ranTally) bool { return r.outcome == outcome })
	if i < 0 {
		i = len(t.ran)
		t.ran = append(t.ran, ranTally{outcome: outcome})
	}
	t.ran[i].took.observe(runBounds, took)
}

func (t *tally) ofStore() *sharedTally {
	if t.shared == nil {
		t.shared = &sharedTally{acquisitions: make(map[string]uint64)}
	}
	return t.shared
}

func (t *tally) acquired(result string) { t.ofStore().acquisitions[result]++ }

// acquireResult returns the result of an acquire, as the metrics name it.
func acquireResult(err error) string {
	if no := refusal(err); no != nil {
		return string(no.Reason)
	}
	if err != nil {
		return "error"
	}
	return "acquired"
}

// A histogram counts durations by bounds, in seconds, of which there are at most twelve.
type histogram struct {
	sum    float64
	counts [13]uint64 // up to each bound, and beyond the last
}

func (h *histogram) observe(bounds []float64, d time.Duration) {
	seconds := d.Seconds()
	i := 0
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += seconds
}

func (h *histogram) count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// cumulated returns how many durations were at most each bound.
func (h *histogram) cumulated(bounds []float64) map[float64]uint64 {
	upTo, n := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, bound := range bounds {
		n += h.counts[i]
		upTo[bound] = n
	}
	return upTo
}
