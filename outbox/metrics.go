package outbox

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts counts the attempts that have ended, by outcome.
type counts struct {
	mu sync.Mutex
	by map[Outcome]uint64
}

func (c *counts) ended(outcome Outcome, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[Outcome]uint64{}
	}
	c.by[outcome]++
}

func (c *counts) of(outcome Outcome) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[outcome]
}

// metrics are the Prometheus metrics of a relay. Counters and gauges are computed when Prometheus
// collects them. Metrics of the outbox show what the sampler last read. There is no label for a
// topic or a key, because the number of topics and keys is not bounded.
type metrics struct {
	relay    *Relay
	duration prometheus.Histogram

	attempts, swept, dropped, up, bad, shards *prometheus.Desc
	pending, dead, due, oldest                *prometheus.Desc

	descs []*prometheus.Desc // of the computed metrics
}

var durationBounds = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 15, 30, 60}

const (
	prefix       = "tickslot_outbox_"
	nativeFactor = 1.2 // a quantile is off by a tenth at most
)

func newMetrics(r *Relay) *metrics {
	m := &metrics{relay: r}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(prefix+name, help, labels, nil)
		m.descs = append(m.descs, d)
		return d
	}
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "dispatch_duration_seconds",
		Help: "Duration of calls to sinks.", Buckets: durationBounds, NativeHistogramBucketFactor: nativeFactor,
		NativeHistogramMaxBucketNumber: 160})
	m.attempts = desc("attempts_total", "Delivery attempts of this relay, by outcome.", "outcome")
	m.swept = desc("retention_deleted_total", "Rows deleted by this relay after their retention.")
	m.dropped = desc("hook_events_dropped_total",
		"Events of RelayConfig.Hooks dropped because a hook was too slow.")
	m.up = desc("database_up", "0 after three calls in a row failed, until one succeeds; otherwise 1.")
	m.bad = desc("database_errors_total", "Failed calls to the database, by call.", "call")
	m.shards = desc("shards_led", "Shards that this relay delivers.")
	m.pending = desc("pending", "Pending messages, as this relay last read.")
	m.dead = desc("dead", "Dead messages, as this relay last read.")
	m.due = desc("oldest_due_seconds",
		"Delivery lag: how long the oldest deliverable message has been due, as this relay last read; 0: none.")
	m.oldest = desc("oldest_pending_seconds",
		"How long the oldest pending message has waited since it was appended or requeued, as this relay last "+
			"read; 0: none.")
	return m
}

// observe records how long a sink took. m may be nil.
func (m *metrics) observe(took time.Duration) {
	if m != nil {
		m.duration.Observe(took.Seconds())
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.duration.Describe(ch)
	for _, d := range m.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.duration.Collect(ch)
	r := m.relay
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	for _, outcome := range outcomes {
		counter(m.attempts, r.counts.of(outcome), string(outcome))
	}
	counter(m.swept, r.sweeper.Rows())
	counter(m.dropped, r.events.Dropped())
	up := 1. // also 1 before the first call: a process that has just started must not raise an alarm
	if r.calls.Reachable() != nil {
		up = 0
	}
	gauge(m.up, up)
	for op, n := range r.calls.ErrorCounts() {
		counter(m.bad, n, op)
	}
	r.mu.Lock()
	led := len(r.shards)
	r.mu.Unlock()
	gauge(m.shards, float64(led))
	if stats, fresh := r.sampler.Latest(); fresh {
		gauge(m.pending, float64(stats.Pending))
		gauge(m.dead, float64(stats.Dead))
		gauge(m.due, stats.OldestDue.Seconds())
		gauge(m.oldest, stats.OldestPending.Seconds())
	}
}
