package timer

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/client_golang/prometheus"
)

// A histogram counts durations in buckets. It keeps only buckets that are not empty, in their
// order: those of most timers are few, and a classic histogram of Prometheus' own is a kilobyte.
type histogram struct {
	sum     float64 // s
	buckets []bucket
}

// A bucket has a number that depends on the kind of the histogram: see bucketOf.
type bucket struct {
	number int32
	n      uint64
}

func (b bucket) compare(number int32) int { return cmp.Compare(b.number, number) }

// The buckets of our native histograms: each reaches 2^(1/4) times as far as the one before it, and
// the first, number nativeZero, to a microsecond. So a quantile is off by at most a tenth, and the
// durations of a timer need a dozen buckets.
const (
	nativeSchema        = 2   // of Prometheus: four buckets from one power of two to the next
	nativeFactor        = 1.2 // with it client_golang chooses that schema
	nativeZeroThreshold = 0x1p-20
	nativeMaxBuckets    = 160 // for client_golang; from a microsecond to three days it takes 152
	nativeZero          = math.MinInt32
)

// nativeBounds are the bounds of the buckets between one half and 1.
var nativeBounds = []float64{0.5, 0.5946035575013605, 0.7071067811865475, 0.8408964152537144}

// bucketOf returns the number of a bucket. In a classic histogram that is the first of bounds that
// is not exceeded; nil bounds: the histogram is native.
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

// observe counts a duration. The bounds of one histogram are always the same.
func (h *histogram) observe(bounds []float64, seconds float64) {
	number := bucketOf(bounds, seconds)
	i, found := slices.BinarySearchFunc(h.buckets, number, bucket.compare)
	if !found {
		more := make([]bucket, 0, len(h.buckets)+1) // rarely, so it need not have room for others
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

// classic returns how many durations were at most each bound.
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

// native returns how many durations each bucket has.
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

// histogramOpts returns the options of a histogram of client_golang; nil bounds: it is native.
func histogramOpts(name, help string, bounds []float64) prometheus.HistogramOpts {
	o := prometheus.HistogramOpts{Namespace: "tickslot", Name: name, Help: help, Buckets: bounds}
	if bounds == nil {
		o.NativeHistogramBucketFactor, o.NativeHistogramZeroThreshold = nativeFactor, nativeZeroThreshold
		o.NativeHistogramMaxBucketNumber = nativeMaxBuckets
	}
	return o
}
