package timer

import (
	"math"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
)

// metrics are the Prometheus metrics of a scheduler. Those of timers are computed from the ledger
// when Prometheus collects them. A hundred thousand timers have millions of series, and keeping
// each up to date would cost more than everything else in a run. There is no label for the host
// (Prometheus adds instance), the slot, the run or the fence: their number is not bounded.
type metrics struct {
	scheduler *Scheduler

	ticks, runs, retries, runDuration, tickLag                        *prometheus.Desc
	acquisitions, holdTime, beats, leasesLost                         *prometheus.Desc
	slotsHeld, slotsLimit, slotsElsewhere, bound                      *prometheus.Desc
	fallbackActive, fallbackRuns, paused, lastSuccess, scheduleFailed *prometheus.Desc
	overdueRuns, overlongHolds, leasesExpired                         *prometheus.Desc
	breaker, up, hosts, droppedEvents                                 *prometheus.Desc
	limitRuns, limitSize, limitElsewhere, waiting                     *prometheus.Desc

	acquireTime *prometheus.HistogramVec
	opTime      *prometheus.HistogramVec
	opErrors    *prometheus.CounterVec
	build       *prometheus.GaugeVec
}

var (
	callBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	runBounds  = []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400}
)

func newMetrics(s *Scheduler) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tickslot", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tickslot", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tickslot", Name: name, Help: help,
			Buckets: callBounds}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tickslot_"+name, help, labels, nil)
	}
	m := &metrics{
		scheduler: s,
		ticks: desc("ticks_total", "Ticks that came due: started, missed, or skipped and why.", "timer",
			"result"),
		runs:         desc("runs_total", "Runs that ended, by outcome.", "timer", "outcome"),
		retries:      desc("retries_total", "Attempts after the first of a run.", "timer"),
		runDuration:  desc("run_duration_seconds", "How long runs took.", "timer", "outcome"),
		tickLag:      desc("tick_lag_seconds", "How long after their instant ticks started.", "timer"),
		acquisitions: desc("slot_acquisitions_total", "Attempts to get a slot, by result.", "timer", "result"),
		acquireTime:  histogram("slot_acquire_duration_seconds", "How long attempts to get a slot took.", "store"),
		holdTime:     desc("slot_hold_duration_seconds", "How long slots were held.", "timer"),
		slotsHeld:    desc("slots_held", "Slots that this host holds.", "timer"),
		slotsLimit:   desc("slots_limit", "Slots that this host thinks the timer has in the fleet.", "timer"),
		slotsElsewhere: desc("slots_limit_elsewhere",
			"Slots that other hosts think the timer has, if they disagree; else 0.", "timer"),
		beats:          desc("heartbeats_total", "Renewals of slots, by result.", "timer", "result"),
		leasesLost:     desc("leases_lost_total", "Slots that were lost while a run held them.", "timer"),
		fallbackActive: desc("fallback_active", "1 while the timer runs, or would run, without the store.", "timer"),
		fallbackRuns:   desc("fallback_runs_total", "Runs that started without the store.", "timer"),
		bound: desc("effective_limit_bound",
			"How many runs may go on at once in the fleet at worst: MaxConcurrency, or without the store hosts × "+
				"MaxPerHost; +Inf: not known.",
			"timer"),
		overdueRuns: desc("runs_overdue", "Runs on this host that are past MaxRunTime and ignore their context.",
			"timer"),
		overlongHolds: desc("holds_overlong_total",
			"Runs here, and slots elsewhere as far as refusals tell, that went beyond 1.5 × MaxRunTime.", "timer"),
		leasesExpired: desc("leases_expired_total",
			"Slots that this host got after whoever had them let them expire unreleased.", "timer"),
		hosts: desc("hosts",
			"Schedulers that were last seen to share the store and compete for its slots, this one included. Not "+
				"there until they are known."),
		breaker: desc("store_breaker_open",
			"1 while ticks do not ask the store because it failed several times in a row.", "store"),
		up: desc("store_up", "1 if the store answered the last call, and found nothing wrong with itself.",
			"store"),
		opTime: histogram("store_operation_duration_seconds", "How long calls to the store took.", "store",
			"op"),
		opErrors: counter("store_errors_total", "Calls to the store that failed or were not answered.", "store",
			"op"),
		lastSuccess: desc("last_success_timestamp_seconds",
			"When the timer's last successful run ended, on any host, as far as this one knows.", "timer"),
		paused: desc("paused", "1 while the timer is paused in the whole fleet, as far as this host has heard.",
			"timer"),
		scheduleFailed: desc("schedule_failed",
			"1 while the timer is not due because its schedule failed when it was asked last.", "timer"),
		droppedEvents: desc("hook_events_dropped_total",
			"Events of Config.Hooks that were dropped because a hook was slower than what happened."),
		limitRuns: desc("limit_runs", "Runs on this host that hold the limit, which several timers share.", "limit"),
		limitSize: desc("limit_size", "How many runs may hold the limit in the fleet, as this host thinks.", "limit"),
		limitElsewhere: desc("limit_size_elsewhere",
			"How many runs may hold the limit as other hosts think, if they disagree; else 0.", "limit"),
		waiting: desc("runs_waiting", "Ticks and triggers that wait because MaxRuns runs go on on this host."),
		build:   gauge("build_info", "1, by version of tickslot and Go.", "version", "go_version"),
	}
	m.build.WithLabelValues(version(), runtime.Version()).Set(1)
	return m
}

// version returns the version of this module in the program's build.
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

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.ticks, m.runs, m.retries, m.runDuration, m.tickLag, m.acquisitions,
		m.holdTime, m.slotsHeld,
		m.slotsLimit, m.slotsElsewhere, m.beats, m.leasesLost, m.fallbackActive, m.fallbackRuns, m.bound,
		m.overdueRuns, m.overlongHolds, m.leasesExpired, m.breaker, m.up, m.hosts, m.lastSuccess, m.scheduleFailed,
		m.paused, m.droppedEvents, m.limitRuns, m.limitSize, m.limitElsewhere, m.waiting} {
		ch <- d
	}
	for _, c := range m.kept() {
		c.Describe(ch)
	}
}

// kept returns the metrics that are kept as Prometheus types.
func (m *metrics) kept() []prometheus.Collector {
	return []prometheus.Collector{m.acquireTime, m.opTime, m.opErrors, m.build}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.kept() {
		c.Collect(ch)
	}
	s := m.scheduler
	var written series
	hosts := 1
	if s.store != nil {
		hosts = s.store.hostsSeen()
		if called, up, open := s.store.gauges(); called {
			written.gauge(m.up, oneIf(up), s.store.label)
			written.gauge(m.breaker, oneIf(open), s.store.label)
		}
	}
	if hosts > 0 {
		written.gauge(m.hosts, float64(hosts))
	}
	written.counter(m.droppedEvents, s.events.queue.Dropped())
	waiting, _ := s.registry.inLine()
	written.gauge(m.waiting, float64(waiting))
	for _, l := range s.limits.status() {
		written.gauge(m.limitRuns, float64(l.Runs), l.Name)
		written.gauge(m.limitSize, float64(l.Size), l.Name)
		written.gauge(m.limitElsewhere, float64(l.SizeElsewhere), l.Name)
	}
	written.send(ch)
	for _, e := range s.registry.all() {
		m.write(&written, e)
		written.send(ch)
	}
}

// write adds the series of a timer, unless it is over. A counter that alerts look for exists before
// it is first incremented: Prometheus sees no increase in a counter that starts at 1. Series with
// labels of their own exist only once they were counted.
func (m *metrics) write(w *series, e *entry) {
	s, name := m.scheduler, e.timer.Name
	d := e.state
	d.mu.Lock() // no run of it begins or ends meanwhile
	defer d.mu.Unlock()
	if e.isOver() {
		return
	}
	var st TimerStatus // what the views and overrides know
	if s.store != nil {
		s.store.views.fill(e, &st)
		s.store.overrides.fill(e, &st)
	}
	s.ledger.read(&d.record, func(r *record) {
		if r.tally != nil {
			w.born = r.tally.createdAt
		}
		m.writeRecord(w, name, r)
	})
	w.gauge(m.bound, boundValue(s.bound(e)), name)
	w.gauge(m.slotsLimit, float64(min(e.limit(), dlock.MaxSlots)), name)
	w.gauge(m.slotsElsewhere, float64(st.LimitElsewhere), name)
	w.gauge(m.slotsHeld, float64(d.count((*Run).holds)), name)
	w.gauge(m.overdueRuns, float64(d.count((*Run).overdue)), name)
	w.gauge(m.fallbackActive, oneIf(st.Degraded), name)
	w.gauge(m.scheduleFailed, oneIf(e.clock.scheduleFault() != ""), name)
	w.gauge(m.paused, oneIf(st.Paused != nil), name)
}

// writeRecord adds the counters of a record. Called with the record's mutex held.
func (m *metrics) writeRecord(w *series, name string, r *record) {
	var t tally
	if r.tally != nil {
		t = *r.tally
	}
	w.counter(m.retries, t.retries, name)
	w.counter(m.leasesLost, t.leasesLost, name)
	w.counter(m.leasesExpired, t.leasesExpired, name)
	w.counter(m.overlongHolds, t.overlongHolds, name)
	w.counter(m.fallbackRuns, t.fallbackRuns, name)

	if r.started > 0 {
		w.counter(m.ticks, r.started, name, "started")
		w.histogram(m.tickLag, callBounds, &t.lag, name)
	}
	for reason, n := range r.skipped {
		result := "skipped_" + string(reason)
		if reason == ReasonMissed {
			result = "missed"
		}
		w.counter(m.ticks, n, name, result)
	}
	if t.took.count() > 0 {
		w.counter(m.runs, t.took.count(), name, string(OutcomeOK))
		w.histogram(m.runDuration, runBounds, &t.took, name, string(OutcomeOK))
	}
	for i := range t.ran {
		ended := &t.ran[i]
		w.counter(m.runs, ended.took.count(), name, string(ended.outcome))
		w.histogram(m.runDuration, runBounds, &ended.took, name, string(ended.outcome))
	}
	if !r.deadman.success.IsZero() {
		w.gauge(m.lastSuccess, float64(r.deadman.success.UnixMilli())/1000, name)
	}
	if t.shared == nil {
		return
	}
	for result, n := range t.shared.acquisitions {
		w.counter(m.acquisitions, n, name, result)
	}
	for outcome, n := range t.shared.beats {
		if n > 0 {
			w.counter(m.beats, n, name, dlock.GrantOutcome(outcome).String())
		}
	}
	if t.shared.held.count() > 0 {
		w.histogram(m.holdTime, runBounds, &t.shared.held, name)
	}
}

// series are collected while a mutex is held and sent after it is unlocked.
type series struct {
	born time.Time // when counting began; zero: it has not
	list []prometheus.Metric
}

func (w *series) gauge(d *prometheus.Desc, value float64, labels ...string) {
	w.list = append(w.list, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
}

func (w *series) counter(d *prometheus.Desc, n uint64, labels ...string) {
	if w.born.IsZero() {
		w.list = append(w.list, prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...))
		return
	}
	w.list = append(w.list, prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, float64(n),
		w.born, labels...))
}

func (w *series) histogram(d *prometheus.Desc, bounds []float64, h *histogram, labels ...string) {
	w.list = append(w.list, prometheus.MustNewConstHistogramWithCreatedTimestamp(d, h.count(), h.sum,
		h.cumulated(bounds), w.born, labels...))
}

func (w *series) send(ch chan<- prometheus.Metric) {
	for _, m := range w.list {
		ch <- m
	}
	clear(w.list)
	w.list = w.list[:0]
}

// boundValue returns +Inf if there is no bound or it is not known, so that an alert that compares
// it with a limit fires.
func boundValue(bound int) float64 {
	if bound == unlimited || bound == 0 {
		return math.Inf(1)
	}
	return float64(bound)
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// opMetrics are those of one operation of the store.
type opMetrics struct {
	took   prometheus.Observer
	failed prometheus.Counter
}

// ofStore creates the store's own series.
func (m *metrics) ofStore(w *storeWatch) {
	w.acquireTime = m.acquireTime.WithLabelValues(w.label)
	w.ops = make(map[dlock.StoreOp]opMetrics)
	for _, op := range []dlock.StoreOp{dlock.OpAcquire, dlock.OpExtend, dlock.OpRelease} {
		w.ops[op] = opMetrics{took: m.opTime.WithLabelValues(w.label, string(op)),
			failed: m.opErrors.WithLabelValues(w.label, string(op))}
	}
}
