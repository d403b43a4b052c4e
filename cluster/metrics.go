package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// freshFor is the number of TTLs for which a host exports its last read. All hosts together read
// about once per TTL, so there is nearly always a host that exports recent data.
const freshFor = 6

// metrics computes its values from the state when Prometheus collects them. It reads only memory.
type metrics struct {
	registry *Registry

	hosts, timerHosts, leases, errors, dropped, deleted, wrote, failing *prometheus.Desc
}

func newMetrics(r *Registry) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tickslot_cluster_"+name, help, labels, nil)
	}
	return &metrics{
		registry:   r,
		hosts:      desc("hosts", "Processes in the registry by state, as this host last read.", "state"),
		timerHosts: desc("timer_hosts", "Live processes that have the timer, as this host last read.", "timer"),
		leases:     desc("leases", "Leases held in the fleet by kind, as this host last read.", "kind"),
		errors:     desc("store_errors_total", "Calls of this host that failed or were not answered.", "op"),
		dropped:    desc("dropped_total", "Leases, events and runs not recorded because too many waited.", "type"),
		deleted:    desc("swept_rows_total", "Old rows deleted by this host."),
		wrote:      desc("last_write_timestamp_seconds", "When this host last wrote to the registry."),
		failing:    desc("failing", "1 while this host's calls to the registry fail."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.hosts, m.timerHosts, m.leases, m.errors, m.dropped, m.deleted, m.wrote,
		m.failing} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	r := m.registry
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		// Labels may come from other hosts. A label that is not valid UTF-8 causes an error, and
		// its series is left out.
		if metric, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...); err == nil {
			ch <- metric
		}
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	failed := r.faults.ErrorCounts()
	for _, op := range ops {
		counter(m.errors, failed[op], op)
	}
	leases, events, runs := r.pending.drops()
	counter(m.dropped, leases, "leases")
	counter(m.dropped, events, "events")
	counter(m.dropped, runs, "runs")
	counter(m.deleted, r.loop.sweeper.Rows())
	if at := r.writer.lastWrite(); !at.IsZero() {
		gauge(m.wrote, float64(at.UnixMilli())/1000)
	}
	failing := 0.
	if _, err := r.faults.Broken(); err != nil {
		failing = 1
	}
	gauge(m.failing, failing)
	m.fleet(gauge)
}

// fleet exports the last read unless it is too old.
func (m *metrics) fleet(gauge func(*prometheus.Desc, float64, ...string)) {
	r := m.registry
	registered, listed, leases := r.reader.view()
	fresh := func(at time.Time) bool { return !at.IsZero() && time.Since(at) < freshFor*r.config.TTL }
	if !fresh(registered.at) {
		return
	}
	hosts := map[HostState]int{HostAlive: 0, HostSuspect: 0, HostGone: 0, HostRefused: 0}
	timers := map[string]int{}
	for i := range registered.value.hosts {
		h := &registered.value.hosts[i]
		hosts[h.State]++
		if !h.State.Live() {
			continue
		}
		for _, t := range h.Timers {
			timers[t.Name]++
		}
	}
	for state, n := range hosts {
		gauge(m.hosts, float64(n), string(state))
	}
	for timer, n := range timers {
		gauge(m.timerHosts, float64(n), timer)
	}
	if !r.listing.unsupported() && !fresh(listed.at) {
		return
	}
	kinds := map[string]int{}
	for i := range leases {
		if leases[i].State == LeaseHeld {
			kinds[leases[i].Kind]++
		}
	}
	for kind, n := range kinds {
		gauge(m.leases, float64(n), kind)
	}
}
