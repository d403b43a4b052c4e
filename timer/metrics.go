package timer

import (
	"errors"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
)

// metrics are the Prometheus metrics of a scheduler. There is no label for the host (Prometheus adds instance), the
// slot, the run or the fence: their number has no bound.
type metrics struct {
	ticks          *prometheus.CounterVec
	runs           *prometheus.CounterVec
	runDuration    *prometheus.HistogramVec
	tickLag        *prometheus.HistogramVec
	acquisitions   *prometheus.CounterVec
	acquireTime    *prometheus.HistogramVec
	holdTime       *prometheus.HistogramVec
	slotsHeld      *prometheus.GaugeVec
	slotsLimit     *prometheus.GaugeVec
	slotsElsewhere *prometheus.GaugeVec
	beats          *prometheus.CounterVec
	leasesLost     *prometheus.CounterVec
	fallbackActive *prometheus.GaugeVec
	fallbackRuns   *prometheus.CounterVec
	up             *prometheus.GaugeVec
	opTime         *prometheus.HistogramVec
	opErrors       *prometheus.CounterVec
	lastSuccess    *prometheus.GaugeVec
	build          *prometheus.GaugeVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tickslot", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tickslot", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tickslot", Name: name, Help: help, Buckets: buckets}, labels)
	}
	calls := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	runs := []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400}
	m := &metrics{
		ticks:          counter("ticks_total", "Ticks that came due, by the door that stopped them or started.", "timer", "result"),
		runs:           counter("runs_total", "Runs that ended, by outcome.", "timer", "outcome"),
		runDuration:    histogram("run_duration_seconds", "How long runs took.", runs, "timer", "outcome"),
		tickLag:        histogram("tick_lag_seconds", "How long after their instant ticks started.", calls, "timer"),
		acquisitions:   counter("slot_acquisitions_total", "Attempts to get a slot, by result.", "timer", "result"),
		acquireTime:    histogram("slot_acquire_duration_seconds", "How long attempts to get a slot took.", calls, "store"),
		holdTime:       histogram("slot_hold_duration_seconds", "How long slots were held.", runs, "timer"),
		slotsHeld:      gauge("slots_held", "Slots that this host holds.", "timer"),
		slotsLimit:     gauge("slots_limit", "Slots that this host thinks the timer has in the fleet.", "timer"),
		slotsElsewhere: gauge("slots_limit_elsewhere", "Slots that other hosts think the timer has, if they disagree; else 0.", "timer"),
		beats:          counter("heartbeats_total", "Renewals of slots, by result.", "timer", "result"),
		leasesLost:     counter("leases_lost_total", "Slots that were lost while a run held them.", "timer"),
		fallbackActive: gauge("fallback_active", "1 while the timer runs, or would run, without the store.", "timer"),
		fallbackRuns:   counter("fallback_runs_total", "Runs that started without the store.", "timer"),
		up:             gauge("store_up", "1 if the store answered the last call.", "store"),
		opTime:         histogram("store_operation_duration_seconds", "How long calls to the store took.", calls, "store", "op"),
		opErrors:       counter("store_errors_total", "Calls to the store that failed or were not answered.", "store", "op"),
		lastSuccess:    gauge("last_success_timestamp_seconds", "When the timer's last successful run on this host ended.", "timer"),
		build:          gauge("build_info", "1, by version of tickslot and Go.", "version", "go_version"),
	}
	m.build.WithLabelValues(version(), runtime.Version()).Set(1)
	return m
}

// version is that of the module as the program was built with it.
func version() string {
	const path = "github.com/tickslot/tickslot"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version
		}
	}
	return info.Main.Version
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.ticks, m.runs, m.runDuration, m.tickLag, m.acquisitions, m.acquireTime, m.holdTime, m.slotsHeld,
		m.slotsLimit, m.slotsElsewhere, m.beats, m.leasesLost, m.fallbackActive, m.fallbackRuns, m.up, m.opTime, m.opErrors, m.lastSuccess, m.build}
}

// register registers all or nothing.
func (m *metrics) register(reg prometheus.Registerer) error {
	for i, c := range m.all() {
		if err := reg.Register(c); err != nil {
			for _, done := range m.all()[:i] {
				reg.Unregister(done)
			}
			return err
		}
	}
	return nil
}

func (m *metrics) registered(t Timer) {
	m.slotsLimit.WithLabelValues(t.Name).Set(float64(t.slots()))
	// What an alert looks for has to be there before it happens: a counter that is born at 1 has not increased.
	for _, g := range []*prometheus.GaugeVec{m.slotsHeld, m.slotsElsewhere, m.fallbackActive} {
		g.WithLabelValues(t.Name).Set(0)
	}
	for _, c := range []*prometheus.CounterVec{m.leasesLost, m.fallbackRuns} {
		c.WithLabelValues(t.Name)
	}
}

func (m *metrics) removed(timer string) {
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.ticks, m.runs, m.runDuration, m.tickLag, m.acquisitions,
		m.holdTime, m.slotsHeld, m.slotsLimit, m.slotsElsewhere, m.beats, m.leasesLost, m.fallbackActive, m.fallbackRuns, m.lastSuccess} {
		v.DeletePartialMatch(prometheus.Labels{"timer": timer})
	}
}

func (m *metrics) skipped(timer string, reason Reason, n uint64) {
	result := "skipped_" + string(reason)
	if reason == Missed {
		result = "missed"
	}
	m.ticks.WithLabelValues(timer, result).Add(float64(n))
}

func (m *metrics) started(timer string, r *Run) {
	if !r.tick.IsZero() {
		m.ticks.WithLabelValues(timer, "started").Inc()
		m.tickLag.WithLabelValues(timer).Observe(max(0, r.started.Sub(r.tick).Seconds()))
	}
	if r.lease != nil {
		m.slotsHeld.WithLabelValues(timer).Inc()
	}
	if r.Degraded() {
		m.fallbackRuns.WithLabelValues(timer).Inc()
	}
}

func (m *metrics) finished(timer string, outcome Outcome, took time.Duration) {
	m.runs.WithLabelValues(timer, string(outcome)).Inc()
	m.runDuration.WithLabelValues(timer, string(outcome)).Observe(took.Seconds())
	if outcome == OK {
		m.lastSuccess.WithLabelValues(timer).SetToCurrentTime()
	}
}

func (m *metrics) letGo(timer string, held time.Duration) {
	m.slotsHeld.WithLabelValues(timer).Dec()
	m.holdTime.WithLabelValues(timer).Observe(held.Seconds())
}

func (m *metrics) acquired(timer, store string, err error, took time.Duration) {
	result := "acquired"
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		result = string(no.Reason)
	} else if err != nil {
		result = "error"
	}
	m.acquisitions.WithLabelValues(timer, result).Inc()
	m.acquireTime.WithLabelValues(store).Observe(took.Seconds())
}

func (m *metrics) heartbeat(timer string, outcome dlock.Outcome) {
	m.beats.WithLabelValues(timer, outcome.String()).Inc()
}

func (m *metrics) lost(timer string) { m.leasesLost.WithLabelValues(timer).Inc() }

func (m *metrics) elsewhere(timer string, slots int) {
	m.slotsElsewhere.WithLabelValues(timer).Set(float64(slots))
}

func (m *metrics) fallback(timer string, active bool) {
	value := 0.0
	if active {
		value = 1
	}
	m.fallbackActive.WithLabelValues(timer).Set(value)
}

func (m *metrics) storeUp(store string, up bool) {
	value := 0.0
	if up {
		value = 1
	}
	m.up.WithLabelValues(store).Set(value)
}

func (m *metrics) storeOp(store, op string, took time.Duration, err error) {
	m.opTime.WithLabelValues(store, op).Observe(took.Seconds())
	if err != nil {
		m.opErrors.WithLabelValues(store, op).Inc()
	}
}
