package timer

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// storeMetrics are the metrics of a scheduler's store. There are few, so they are stored as
// Prometheus types. If an alert may compute the increase of a counter, the counter exists from the
// start, at 0. A nil *storeMetrics counts nothing.
type storeMetrics struct {
	results    *prometheus.CounterVec // of acquires, by result
	expired    prometheus.Counter
	beats      [driver.GrantLost + 1]prometheus.Counter
	ops        map[dlock.StoreOp]opMetrics
	took, hold prometheus.Observer // durations of acquires, and of holding a slot

	collectors []prometheus.Collector
}

// opMetrics are the metrics of one operation of the store.
type opMetrics struct {
	took   prometheus.Observer
	failed prometheus.Counter
}

// newStoreMetrics returns the metrics of a store. Histograms are native if the bounds are nil.
func newStoreMetrics(store string, callBounds, runBounds []float64) *storeMetrics {
	m := &storeMetrics{}
	labels := prometheus.Labels{"store": store}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tickslot", Name: name, Help: help,
			ConstLabels: labels}, more)
		m.collectors = append(m.collectors, c)
		return c
	}
	histogram := func(name, help string, bounds []float64, more ...string) *prometheus.HistogramVec {
		o := histogramOpts(name, help, bounds)
		o.ConstLabels = labels
		h := prometheus.NewHistogramVec(o, more)
		m.collectors = append(m.collectors, h)
		return h
	}
	m.results = counter("slot_acquisitions_total", "Attempts to get a slot, by result.", "result")
	for _, result := range []string{"acquired", string(ReasonFull), "error"} {
		m.results.WithLabelValues(result)
	}
	m.took = histogram("slot_acquire_duration_seconds", "Duration of attempts to get a slot.",
		callBounds).WithLabelValues()
	m.hold = histogram("slot_hold_duration_seconds", "How long slots were held.", runBounds).WithLabelValues()
	m.expired = counter("leases_expired_total",
		"Slots taken by this host after the previous holder let its lease expire.").WithLabelValues()
	beats := counter("heartbeats_total", "Renewals of slots, by result.", "result")
	for outcome := range m.beats {
		m.beats[outcome] = beats.WithLabelValues(driver.GrantOutcome(outcome).String())
	}
	took := histogram("store_operation_duration_seconds", "Duration of calls to the store.", callBounds, "op")
	failed := counter("store_errors_total", "Calls to the store that failed or were not answered.", "op")
	m.ops = make(map[dlock.StoreOp]opMetrics)
	for _, op := range []dlock.StoreOp{dlock.StoreOpAcquire, dlock.StoreOpExtend, dlock.StoreOpRelease} {
		m.ops[op] = opMetrics{took: took.WithLabelValues(string(op)), failed: failed.WithLabelValues(string(op))}
	}
	return m
}

// acquired counts an attempt to acquire a slot with ctx. It calls methods of the store's error, so
// the caller must hold no mutex.
func (s *storeMetrics) acquired(ctx context.Context, lease *dlock.Lease, err error, took time.Duration) {
	if s == nil {
		return
	}
	s.took.Observe(took.Seconds())
	s.results.WithLabelValues(acquireResult(ctx, err)).Inc()
	if lease != nil && lease.PreviousExpired() {
		s.expired.Inc()
	}
}

// acquireResult returns the value of the result label for an acquire.
func acquireResult(ctx context.Context, err error) string {
	no := refusal(err)
	switch {
	case no != nil:
		return resultOf(Reason(no.Reason))
	case err == nil:
		return "acquired"
	case errors.Is(ctx.Err(), context.Canceled): // the error says nothing about the store
		return "canceled"
	}
	return "error"
}

// resultOf returns a reason as the value of a label. A store may define any number of reasons, so
// unknown ones share a value.
func resultOf(reason Reason) string {
	if verdictOf(reason) == 0 && reason != ReasonNotRunning {
		return "other"
	}
	return string(reason)
}

func (s *storeMetrics) held(d time.Duration) {
	if s != nil {
		s.hold.Observe(d.Seconds())
	}
}

func (s *storeMetrics) renewed(outcome driver.GrantOutcome) {
	if s != nil {
		s.beats[min(outcome, driver.GrantLost)].Inc()
	}
}

// called counts a call to the store.
func (s *storeMetrics) called(op dlock.StoreOp, took time.Duration, failed bool) {
	if s == nil {
		return
	}
	o, ok := s.ops[op]
	if !ok {
		return
	}
	o.took.Observe(took.Seconds())
	if failed {
		o.failed.Inc()
	}
}
