package timer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Our histograms, classic and native, count as Prometheus' own histograms do: at the bounds,
// between them, beyond the last, and down to zero.
//
// Fails when a duration that equals a bound is counted in the bucket above, when the classic
// buckets are not cumulative, when histogram.native does not separate the zero bucket, or when sum
// is missing.
func TestHistogramIsAsPrometheus(t *testing.T) {
	d := prometheus.NewDesc("h", "h", []string{"timer"}, nil)
	for _, bounds := range [][]float64{callBounds, runBounds, nil} {
		var ours histogram
		theirs := prometheus.NewHistogram(histogramOpts("h", "h", bounds))
		for _, bound := range append(append([]float64{0, 0x1p-20, 20_000}, callBounds...), nativeBounds...) {
			for _, more := range []time.Duration{0, time.Nanosecond, 200 * time.Microsecond} {
				seconds := bound + more.Seconds()
				ours.observe(bounds, seconds)
				theirs.Observe(seconds)
			}
		}
		w := series{classic: bounds != nil}
		w.histogram(d, bounds, &ours, "a")
		var told [2]string
		for i, m := range []prometheus.Metric{w.list[0], theirs} {
			reg := prometheus.NewRegistry()
			reg.MustRegister(oneMetric{m})
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			h := families[0].GetMetric()[0].GetHistogram()
			if h.GetSampleCount() == 0 || len(h.GetBucket()) != len(bounds) {
				t.Errorf("%v", h)
			}
			h.CreatedTimestamp = nil
			told[i] = h.String()
		}
		if told[0] != told[1] {
			t.Errorf("ours   %v\ntheirs %v", told[0], told[1])
		}
	}
}

type oneMetric struct{ prometheus.Metric }

func (m oneMetric) Describe(ch chan<- *prometheus.Desc) { ch <- m.Desc() }

func (m oneMetric) Collect(ch chan<- prometheus.Metric) { ch <- m.Metric }
