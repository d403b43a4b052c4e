package serve

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
)

// scrapeTimeout bounds a scrape's calls to the store. Prometheus waits for ten seconds.
const scrapeTimeout = 5 * time.Second

var (
	durableRuns = prometheus.NewDesc("tickslot_durable_runs", "Runs in the fleet, by handler and state.",
		[]string{"handler", "state"}, nil)
	outboxPending = prometheus.NewDesc("tickslot_outbox_pending", "Pending messages.", nil, nil)
	outboxDead    = prometheus.NewDesc("tickslot_outbox_dead", "Dead messages.", nil, nil)
	outboxDue     = prometheus.NewDesc("tickslot_outbox_oldest_due_seconds",
		"Delivery lag: how long the oldest deliverable message has been due; 0: none.", nil, nil)
	outboxOldest = prometheus.NewDesc("tickslot_outbox_oldest_pending_seconds",
		"How long the oldest pending message has waited since it was appended or requeued; 0: none.", nil, nil)
)

// A backlog collects the metrics of durable runs and messages at each scrape, under the names that
// workers and relays use.
type backlog struct {
	runs *durable.Store // nil if there are none
	box  *outbox.Outbox // nil if there is none
}

// Describe implements prometheus.Collector.
func (b backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{durableRuns, outboxPending, outboxDead, outboxDue, outboxOldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It leaves out metrics that it cannot read.
func (b backlog) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		// A label may come from another host. A label that is not valid UTF-8 causes an error.
		if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...); err == nil {
			ch <- m
		}
	}
	if b.runs != nil {
		handlers, _ := b.runs.Handlers(ctx) // nil after an error
		for _, h := range handlers {
			if h.Name == "" { // the record for all handlers
				continue
			}
			gauge(durableRuns, float64(h.Queued), h.Name, string(durable.StateQueued))
			gauge(durableRuns, float64(h.Running), h.Name, string(durable.StateRunning))
			gauge(durableRuns, float64(h.Dead), h.Name, string(durable.StateDead))
		}
	}
	if b.box == nil {
		return
	}
	if waits, err := b.box.Backlog(ctx); err == nil {
		gauge(outboxPending, float64(waits.Pending))
		gauge(outboxDead, float64(waits.Dead))
		gauge(outboxDue, waits.DueAge.Seconds())
		gauge(outboxOldest, waits.PendingAge.Seconds())
	}
}
