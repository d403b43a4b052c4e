package leader

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are computed from the state when Prometheus collects them.
type metrics struct {
	elector *Elector

	leading, seen, unhealthy, terms *prometheus.Desc
}

func newMetrics(e *Elector) *metrics {
	role := prometheus.Labels{"role": e.role.Name}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tickslot_leader_"+name, help, labels, role)
	}
	return &metrics{
		elector: e,
		leading: desc("leading", "1 while this host leads."),
		seen:    desc("seen_timestamp_seconds", "When a host, this one or another, was last known to lead."),
		unhealthy: desc("unhealthy", "1 while no leader is known, or the function on this host "+
			"keeps failing or ignores the end of its context."),
		terms: desc("terms_total", "Terms of this host that ended, by outcome.", "outcome"),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.leading, m.seen, m.unhealthy, m.terms} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.elector.Status()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	is := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	gauge(m.leading, is(s.State == StateLeading))
	gauge(m.unhealthy, is(m.elector.Healthy() != nil))
	if !s.LeaderSeenAt.IsZero() {
		gauge(m.seen, float64(s.LeaderSeenAt.UnixMilli())/1000)
	}
	for o, n := range s.Terms {
		ch <- prometheus.MustNewConstMetric(m.terms, prometheus.CounterValue, float64(n), string(o))
	}
}
