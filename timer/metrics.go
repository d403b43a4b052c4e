package timer

import (
	"errors"
	"math"
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
	retries        *prometheus.CounterVec
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
	bound          *prometheus.GaugeVec
	overdueRuns    *prometheus.GaugeVec
	overlongHolds  *prometheus.CounterVec
	leasesExpired  *prometheus.CounterVec
	hosts          prometheus.Gauge
	breaker        *prometheus.GaugeVec
	up             *prometheus.GaugeVec
	opTime         *prometheus.HistogramVec
	opErrors       *prometheus.CounterVec
	lastSuccess    *prometheus.GaugeVec
	paused         *prometheus.GaugeVec
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
		retries:        counter("retries_total", "Attempts after the first of a run.", "timer"),
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
		bound:          gauge("effective_limit_bound", "How many runs may go on at once in the fleet at worst: MaxConcurrency, or without the store hosts × MaxPerHost.", "timer"),
		overdueRuns:    gauge("runs_overdue", "Runs on this host that are past MaxRunTime and ignore their context.", "timer"),
		overlongHolds:  counter("holds_overlong_total", "Runs here, and slots elsewhere as far as refusals tell, that went beyond 1.5 × MaxRunTime.", "timer"),
		leasesExpired:  counter("leases_expired_total", "Slots that this host got after whoever had them let them expire unreleased.", "timer"),
		hosts:          prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tickslot", Name: "hosts", Help: "Schedulers that were last seen to share the store and compete for its slots, this one included."}),
		breaker:        gauge("store_breaker_open", "1 while ticks do not ask the store because it failed several times in a row.", "store"),
		up:             gauge("store_up", "1 if the store answered the last call.", "store"),
		opTime:         histogram("store_operation_duration_seconds", "How long calls to the store took.", calls, "store", "op"),
		opErrors:       counter("store_errors_total", "Calls to the store that failed or were not answered.", "store", "op"),
		lastSuccess:    gauge("last_success_timestamp_seconds", "When the timer's last successful run ended, on any host, as far as this one knows.", "timer"),
		paused:         gauge("paused", "1 while the timer is paused in the whole fleet, as far as this host has heard.", "timer"),
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
	return []prometheus.Collector{m.ticks, m.runs, m.retries, m.runDuration, m.tickLag, m.acquisitions, m.acquireTime, m.holdTime, m.slotsHeld,
		m.slotsLimit, m.slotsElsewhere, m.beats, m.leasesLost, m.fallbackActive, m.fallbackRuns, m.bound,
		m.overdueRuns, m.overlongHolds, m.leasesExpired, m.hosts, m.breaker, m.up, m.opTime, m.opErrors, m.lastSuccess, m.paused, m.build}
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
	m.limit(t.Name, t.slots())
	// What an alert looks for has to be there before it happens: a counter that is born at 1 has not increased.
	m.bound.WithLabelValues(t.Name).Set(limitValue(t.MaxConcurrency))
	for _, g := range []*prometheus.GaugeVec{m.overdueRuns, m.slotsHeld, m.slotsElsewhere, m.fallbackActive, m.paused} {
		g.WithLabelValues(t.Name).Set(0)
	}
	for _, c := range []*prometheus.CounterVec{m.retries, m.leasesLost, m.leasesExpired, m.overlongHolds, m.fallbackRuns} {
		c.WithLabelValues(t.Name)
	}
}

func (m *metrics) removed(timer string) {
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.ticks, m.runs, m.retries, m.runDuration, m.tickLag, m.acquisitions,
		m.holdTime, m.slotsHeld, m.slotsLimit, m.slotsElsewhere, m.beats, m.leasesLost, m.fallbackActive, m.fallbackRuns, m.lastSuccess,
		m.bound, m.overdueRuns, m.overlongHolds, m.leasesExpired, m.paused} {
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
	if r.lease.Load() != nil {
		m.holds(timer)
	}
	if r.Degraded() {
		m.fallbackRuns.WithLabelValues(timer).Inc()
	}
}

func (m *metrics) holds(timer string) { m.slotsHeld.WithLabelValues(timer).Inc() }

func (m *metrics) abandoned(timer string) { m.leasesExpired.WithLabelValues(timer).Inc() }

func (m *metrics) overlong(timer string) { m.overlongHolds.WithLabelValues(timer).Inc() }

func (m *metrics) overdue(timer string, runs int) {
	m.overdueRuns.WithLabelValues(timer).Set(float64(runs))
}

func (m *metrics) limitBound(timer string, bound int) {
	m.bound.WithLabelValues(timer).Set(limitValue(bound))
}

func (m *metrics) limit(timer string, slots int) {
	m.slotsLimit.WithLabelValues(timer).Set(float64(slots))
}

func (m *metrics) pause(timer string, paused bool) {
	m.paused.WithLabelValues(timer).Set(oneIf(paused))
}

// limitValue writes NoLimit as what it is.
func limitValue(limit int) float64 {
	if limit == NoLimit {
		return math.Inf(1)
	}
	return float64(limit)
}

func (m *metrics) succeeded(timer string, at time.Time) {
	m.lastSuccess.WithLabelValues(timer).Set(float64(at.UnixMilli()) / 1000)
}

func (m *metrics) finished(timer string, outcome Outcome, took time.Duration) {
	m.runs.WithLabelValues(timer, string(outcome)).Inc()
	m.runDuration.WithLabelValues(timer, string(outcome)).Observe(took.Seconds())
}

func (m *metrics) retried(timer string) { m.retries.WithLabelValues(timer).Inc() }

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
	m.fallbackActive.WithLabelValues(timer).Set(oneIf(active))
}

func (m *metrics) storeUp(store string, up, open bool) {
	m.up.WithLabelValues(store).Set(oneIf(up))
	m.breaker.WithLabelValues(store).Set(oneIf(open))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (m *metrics) storeOp(store, op string, took time.Duration, err error) {
	m.opTime.WithLabelValues(store, op).Observe(took.Seconds())
	if err != nil {
		m.opErrors.WithLabelValues(store, op).Inc()
	}
}
