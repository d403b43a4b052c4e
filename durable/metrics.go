package durable

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of a worker. Counters and gauges are computed when Prometheus
// collects them. Metrics of the fleet show what the sampler last read. There is no label for the
// worker (Prometheus adds instance) or the run, because the number of workers and runs is not
// bounded.
type metrics struct {
	worker *Worker

	duration, delay                                            *prometheus.HistogramVec
	attempts, discarded, leasesLost, active, ticks             *prometheus.Desc
	reclaimed, renewals, swept, droppedEvents, databaseUp, bad *prometheus.Desc
	runs, oldest                                               *prometheus.Desc

	descs []*prometheus.Desc // of the computed metrics
}

var (
	durationBounds = []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400}
	delayBounds    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120, 600, 3600}
)

const (
	prefix       = "tickslot_durable_"
	nativeFactor = 1.2 // a quantile is off by a tenth at most
)

func newMetrics(w *Worker) *metrics {
	m := &metrics{worker: w}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(prefix+name, help, labels, nil)
		m.descs = append(m.descs, d)
		return d
	}
	histogram := func(name, help string, bounds []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: bounds,
			NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: 160}, []string{"handler"})
	}
	m.duration = histogram("run_duration_seconds", "Duration of attempts.", durationBounds)
	m.delay = histogram("start_delay_seconds", "Delay from when an attempt was due until it was claimed.", delayBounds)
	m.attempts = desc("attempts_total", "Attempts of this worker that ended, by outcome.", "handler", "outcome")
	m.discarded = desc("results_discarded_total",
		"Results of this worker that did not count because another worker had reclaimed the run.", "handler")
	m.leasesLost = desc("leases_lost_total", "Leases that this worker lost while the handler was running.", "handler")
	m.active = desc("runs_active", "Runs in progress on this worker.", "handler")
	m.ticks = desc("ticks_total", "Ticks handled by this worker: queued, coalesced, skipped or paused.",
		"schedule", "result")
	m.reclaimed = desc("runs_reclaimed_total", "Runs that this worker took over after another's lease had expired.")
	m.renewals = desc("lease_renewals_total", "Leases extended by this worker.")
	m.swept = desc("swept_rows_total", "Rows deleted by this worker after their retention.")
	m.droppedEvents = desc("hook_events_dropped_total",
		"Events of Config.Hooks dropped because a hook was too slow.")
	m.databaseUp = desc("database_up", "0 after three calls in a row failed, until one succeeds; otherwise 1.")
	m.bad = desc("database_errors_total", "Failed calls to the database, by call.", "call")
	m.runs = desc("runs", "Runs in the fleet by state (queued, running, dead), as this worker last read.",
		"handler", "state")
	m.oldest = desc("oldest_due_age_seconds",
		"How long the oldest queued run has been due, as this worker last read; 0: none is due.", "handler")
	return m
}

// observe gives a handler its histograms. m may be nil.
func (m *metrics) observe(h *handler) {
	if m != nil {
		h.counts.duration, h.counts.delay = m.duration.WithLabelValues(h.name), m.delay.WithLabelValues(h.name)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.duration.Describe(ch)
	m.delay.Describe(ch)
	for _, d := range m.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.duration.Collect(ch)
	m.delay.Collect(ch)
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		// A name in the database may be invalid UTF-8. Then only the series of that name is left
		// out.
		if metric, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...); err == nil {
			ch <- metric
		}
	}
	w := m.worker
	handlers, schedules := w.parts()
	active := map[string]int{}
	for _, a := range w.book.list() {
		active[a.run.Handler]++
	}
	for name, h := range handlers {
		attempts, discarded, losses := h.counts.read()
		for outcome, n := range attempts {
			counter(m.attempts, n, name, string(outcome))
		}
		counter(m.discarded, discarded, name)
		counter(m.leasesLost, losses, name)
		gauge(m.active, float64(active[name]), name)
	}
	for name, s := range schedules {
		sum := s.ticks.read()
		counter(m.ticks, uint64(sum.Queued), name, "queued")
		counter(m.ticks, uint64(sum.Coalesced), name, "coalesced")
		counter(m.ticks, uint64(sum.Skipped), name, "skipped")
		counter(m.ticks, uint64(sum.PausedTicks), name, "paused")
	}
	counter(m.reclaimed, w.reclaimer.reclaimed.Load())
	counter(m.renewals, w.renewer.renewals.Load())
	counter(m.swept, w.sweeper.Rows())
	counter(m.droppedEvents, w.events.Dropped())
	up := 1.
	if w.database.Reachable() != nil {
		up = 0
	}
	gauge(m.databaseUp, up)
	for op, n := range w.database.ErrorCounts() {
		counter(m.bad, n, op)
	}
	m.fleet(gauge)
}

// fleet exports the gauges of the fleet from the sampler's last data, if the data is not too old.
func (m *metrics) fleet(gauge func(*prometheus.Desc, float64, ...string)) {
	stats, fresh := m.worker.sampler.Latest()
	if !fresh {
		return
	}
	for _, h := range stats.ByHandler {
		gauge(m.runs, float64(h.Queued), h.Handler, string(StateQueued))
		gauge(m.runs, float64(h.Running), h.Handler, string(StateRunning))
		gauge(m.runs, float64(h.Dead), h.Handler, string(StateDead))
		age := time.Duration(0)
		if !h.OldestDue.IsZero() {
			age = max(0, stats.Now.Sub(h.OldestDue))
		}
		gauge(m.oldest, age.Seconds(), h.Handler)
	}
}

// parts returns the handlers and schedules of a worker.
func (w *Worker) parts() (map[string]*handler, map[string]*scheduled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.handlers), maps.Clone(w.schedules)
}
