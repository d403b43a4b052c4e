package timer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/schedule"
)

// Our histograms count as Prometheus' own would: at the bounds, between them and beyond the last.
//
// Fails when a duration that is just a bound goes into the bucket above, when the buckets are not
// cumulated, and when sum is left out.
func TestHistogramIsAsPrometheus(t *testing.T) {
	type told struct {
		n       uint64
		sum     float64
		buckets [12]uint64
	}
	for _, bounds := range [][]float64{callBounds, runBounds} {
		var ours histogram
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Help: "h", Buckets: bounds})
		for _, bound := range append([]float64{0, 20_000}, bounds...) {
			for _, more := range []time.Duration{0, time.Nanosecond, 200 * time.Microsecond} {
				d := time.Duration(bound*1e9) + more
				ours.observe(bounds, d)
				theirs.Observe(d.Seconds())
			}
		}
		var got [2]told
		for i, m := range []prometheus.Metric{
			prometheus.MustNewConstHistogram(prometheus.NewDesc("h", "h", nil, nil), ours.count(), ours.sum,
				ours.cumulated(bounds)), theirs} {
			reg := prometheus.NewRegistry()
			reg.MustRegister(oneMetric{m})
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			h := families[0].GetMetric()[0].GetHistogram()
			got[i].n, got[i].sum = h.GetSampleCount(), h.GetSampleSum()
			for j, b := range h.GetBucket() {
				if b.GetUpperBound() != bounds[j] {
					t.Errorf("bucket %d is up to %v, want %v", j, b.GetUpperBound(), bounds[j])
				}
				got[i].buckets[j] = b.GetCumulativeCount()
			}
		}
		if got[0] != got[1] || got[0].n == 0 {
			t.Errorf("ours   %+v\ntheirs %+v", got[0], got[1])
		}
	}
}

// The creation time of a counter is not later than the first event it counts: Prometheus may insert
// a 0 at that time.
//
// Fails when skipMany does not begin the tally.
func TestCountersAreCreatedBeforeTheyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		always := schedule.BlackoutFunc(func(time.Time) bool { return true })
		s, err := New(Config{Registerer: reg, Logger: slog.New(slog.DiscardHandler)},
			Timer{Name: "a", Schedule: schedule.Every(time.Minute), Blackouts: []schedule.Blackout{always},
				Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(90 * time.Second)
		first := time.Now()
		time.Sleep(time.Hour)
		if _, err := s.Trigger(ctx, "a", TriggerOptions{}); err != nil {
			t.Error(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, f := range families {
			if f.GetName() != "tickslot_ticks_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				seen = true
				if c := m.GetCounter(); c.GetCreatedTimestamp() == nil ||
					c.GetCreatedTimestamp().AsTime().After(first) {
					t.Errorf("%v ticks were counted before their counter was born, at %v", c.GetValue(),
						c.GetCreatedTimestamp())
				}
			}
		}
		if !seen {
			t.Error("no ticks were counted")
		}
		cancel()
		running.Wait()
	})
}

type oneMetric struct{ prometheus.Metric }

func (m oneMetric) Describe(ch chan<- *prometheus.Desc) { ch <- m.Desc() }

func (m oneMetric) Collect(ch chan<- prometheus.Metric) { ch <- m.Metric }
