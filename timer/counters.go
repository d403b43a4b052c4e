package timer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sort"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/internal/guard"
)

// A tally has the counts that only the metrics need, for one timer or for all timers with the same
// label. The tally remains until the last timer with its label is removed. If the counts of each
// timer were dropped with it, the sum would decrease. Prometheus would take that for a counter
// reset and report the whole value as an increase. A nil *tally counts nothing.
type tally struct {
	label   string // "" if the tally belongs to one timer
	classic bool   // the histograms have fixed buckets
	timers  int    // the number of timers with the label; guarded by registry.mu

	// mu guards the fields below. No other mutex is locked while it is held.
	mu        sync.Mutex
	createdAt time.Time
	started   uint64
	skipped   counts    // by reason
	runs      counts    // by outcome
	triggers  counts    // by result
	lag       histogram // lateness of the ticks that started
	took      histogram // durations of the runs

	retries, fallbackRuns, overlongHolds, leasesLost uint64
}

// counts maps names to numbers. Most timers have one or two names, for which a map would be too
// large.
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

// of returns the count for a name.
func (c counts) of(name string) uint64 {
	for _, each := range c {
		if each.name == name {
			return each.n
		}
	}
	return 0
}

// bounds returns the bucket bounds of a histogram, or nil if it is native.
func (t *tally) bounds(classic []float64) []float64 {
	if t.classic {
		return classic
	}
	return nil
}

// count locks mu and calls add.
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
		if r.tick != 0 && !r.onStart { // the tick of RunOnStart may be a week old
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

// OtherLabel is the value of the label timer if Config.TimerLabel returns nothing usable for a
// timer.
const OtherLabel = "other"

// A labeler returns the value of the label timer for each timer, as determined by
// Config.TimerLabel.
type labeler struct {
	log    *lineLog
	of     func(timer string) string
	faults rateLimit
}

// label calls user code, which may panic.
func (l *labeler) label(timer string) string {
	label, err := callLabel(l.of, timer)
	if err != nil {
		l.log.laterLimited(&l.faults, slog.LevelWarn,
			"timer: Config.TimerLabel failed: the timer has the label "+OtherLabel, "timer", timer, "err", err)
		l.log.flush()
		return OtherLabel
	}
	return label
}

func callLabel(of func(string) string, timer string) (label string, err error) {
	err = guard.Call("function", func() error { label = of(timer); return nil })
	switch {
	case err != nil:
		return "", err
	case label == "":
		return "", errors.New("it returned an empty text")
	case len(label) > MaxNameLen:
		return "", fmt.Errorf("it returned %d bytes: use at most %d", len(label), MaxNameLen)
	case !utf8.ValidString(label):
		return "", fmt.Errorf("it returned %q, which is not valid UTF-8", label)
	}
	return label, nil
}

// labels maps each label to the tally of its timers. registry.mu guards it. It is nil without a
// TimerLabel. Each timer then has its own tally, which the ledger creates at the first count under
// another mutex.
type labels map[string]*tally

// join adds a new timer to the tally of its label. Before that, its record has its own tally.
func (l labels) join(r *record) {
	if l == nil {
		return
	}
	own := r.tally
	if l[own.label] == nil {
		own.createdAt = time.Now()
		l[own.label] = own
	}
	r.tally = l[own.label]
	r.tally.timers++
}

// part removes a timer that has ended from its label. The tally is dropped with its last timer.
func (l labels) part(r *record) {
	if l == nil {
		return
	}
	if r.tally.timers--; r.tally.timers == 0 {
		delete(l, r.tally.label)
	}
}

// A histogram counts durations in buckets. It keeps only the buckets that are not empty, in
// ascending order, because most timers use few. A classic histogram of Prometheus takes a kilobyte.
type histogram struct {
	sum     float64 // in seconds
	buckets []bucket
}

// A bucket has a number. What the number means depends on the kind of histogram: see bucketOf.
type bucket struct {
	number int32
	n      uint64
}

func (b bucket) compare(number int32) int { return cmp.Compare(b.number, number) }

// These are the buckets of our native histograms. Each upper bound is 2^(1/4) times the previous
// one. The first bucket, number nativeZero, ends at a microsecond. A quantile is therefore off by
// at most a tenth, and the durations of a timer need about a dozen buckets.
const (
	nativeSchema        = 2   // the Prometheus schema: four buckets per power of two
	nativeFactor        = 1.2 // makes client_golang choose that schema
	nativeZeroThreshold = 0x1p-20
	nativeMaxBuckets    = 160 // for client_golang; a microsecond to three days takes 152
	nativeZero          = math.MinInt32
)

// nativeBounds are the bucket bounds between 0.5 and 1.
var nativeBounds = []float64{0.5, 0.5946035575013605, 0.7071067811865475, 0.8408964152537144}

// bucketOf returns the number of the bucket for a duration. In a classic histogram it is the index
// of the first bound that the duration does not exceed. If bounds is nil, the histogram is native.
func bucketOf(bounds []float64, seconds float64) int32 {
	switch {
	case bounds != nil:
		return int32(sort.SearchFloat64s(bounds, seconds))
	case seconds <= nativeZeroThreshold:
		return nativeZero
	}
	fraction, exponent := math.Frexp(seconds)
	return int32(sort.SearchFloat64s(nativeBounds, fraction) + (exponent-1)*len(nativeBounds))
}

// observe counts a duration. All calls for a histogram must pass the same bounds.
func (h *histogram) observe(bounds []float64, seconds float64) {
	number := bucketOf(bounds, seconds)
	i, found := slices.BinarySearchFunc(h.buckets, number, bucket.compare)
	if !found {
		more := make([]bucket, 0, len(h.buckets)+1) // no spare capacity, because the slice rarely grows
		more = append(append(more, h.buckets[:i]...), bucket{number: number})
		h.buckets = append(more, h.buckets[i:]...)
	}
	h.buckets[i].n++
	h.sum += seconds
}

func (h *histogram) count() (n uint64) {
	for _, b := range h.buckets {
		n += b.n
	}
	return n
}

// classic returns, for each bound, the number of durations up to it.
func (h *histogram) classic(bounds []float64) map[float64]uint64 {
	upTo, n, rest := make(map[float64]uint64, len(bounds)), uint64(0), h.buckets
	for i, bound := range bounds {
		for len(rest) > 0 && int(rest[0].number) <= i {
			n, rest = n+rest[0].n, rest[1:]
		}
		upTo[bound] = n
	}
	return upTo
}

// native returns the number of durations in each bucket.
func (h *histogram) native() (buckets map[int]int64, zero uint64) {
	buckets = make(map[int]int64, len(h.buckets))
	for _, b := range h.buckets {
		if b.number == nativeZero {
			zero = b.n
			continue
		}
		buckets[int(b.number)] = int64(b.n)
	}
	return buckets, zero
}

// histogramOpts returns client_golang's options for a histogram. If bounds is nil, the histogram is
// native.
func histogramOpts(name, help string, bounds []float64) prometheus.HistogramOpts {
	o := prometheus.HistogramOpts{Namespace: "tickslot", Name: name, Help: help, Buckets: bounds}
	if bounds == nil {
		o.NativeHistogramBucketFactor, o.NativeHistogramZeroThreshold = nativeFactor, nativeZeroThreshold
		o.NativeHistogramMaxBucketNumber = nativeMaxBuckets
	}
	return o
}
