package timer

import (
	"math"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock/driver"
)

// metrics are the Prometheus metrics of a scheduler. The metrics of timers are computed from
// tallies when Prometheus collects them. A hundred thousand timers have a million series, and
// updating each series for every run would cost more than everything else in a run. There are no
// labels for the host (Prometheus adds instance), the slot, the run or the fence, because their
// number is unbounded.
type metrics struct {
	scheduler *Scheduler
	labeler   labeler
	classic   bool

	ticks, runs, retries, runDuration, tickLag, triggers *prometheus.Desc
	leasesLost, fallbackRuns, overlongHolds              *prometheus.Desc
	active, slotsHeld, slotsLimit, slotsElsewhere, bound *prometheus.Desc
	fallbackActive, paused, scheduleFailed, overdueRuns  *prometheus.Desc
	lastSuccess, alarmActive                             *prometheus.Desc
	breaker, up, hosts, droppedEvents, waiting, build    *prometheus.Desc
	limitRuns, limitSize, limitElsewhere                 *prometheus.Desc

	descs []*prometheus.Desc // all of them
}

var (
	callBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	runBounds  = []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400}
)

func newMetrics(s *Scheduler) *metrics {
	m := &metrics{scheduler: s, labeler: labeler{log: s.log, of: s.config.TimerLabel},
		classic: s.config.ClassicHistograms}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("tickslot_"+name, help, labels, nil)
		m.descs = append(m.descs, d)
		return d
	}
	m.ticks = desc("ticks_total", "Ticks that came due: started, missed, or skipped_ and the reason.", "timer",
		"result")
	m.runs = desc("runs_total", "Runs that ended, by outcome.", "timer", "outcome")
	m.retries = desc("retries_total", "Attempts of runs after their first.", "timer")
	m.runDuration = desc("run_duration_seconds", "Duration of runs, with retries and the waits between them.", "timer")
	m.tickLag = desc("tick_lag_seconds",
		"Delay from the instant of a tick to the start of its run. Runs that RunOnStart starts do not count.", "timer")
	m.triggers = desc("triggers_total", "Triggers: started, canceled by the caller, or refused_ and the reason.",
		"timer", "result")
	m.leasesLost = desc("leases_lost_total", "Slots lost while a run held them.", "timer")
	m.fallbackRuns = desc("fallback_runs_total", "Runs that started without the store.", "timer")
	m.overlongHolds = desc("holds_overlong_total",
		"Runs on this host that took longer than 1.5 × MaxRunTime, and slots that other hosts were seen to hold for "+
			"longer.", "timer")
	m.active = desc("runs_active", "Runs in progress on this host, with or without a slot.", "timer")
	m.slotsHeld = desc("slots_held", "Slots held by this host.", "timer")
	m.slotsLimit = desc("slots_limit", "MaxConcurrency of the timer, as this host knows it.", "timer")
	m.slotsElsewhere = desc("slots_limit_elsewhere",
		"MaxConcurrency of the timer on other hosts. Absent while all agree.", "timer")
	m.bound = desc("effective_limit_bound",
		"Most runs that can be in progress in the fleet at once. Without the store: hosts × MaxPerHost. +Inf: no "+
			"bound, or not known. Absent while it equals slots_limit.", "timer")
	m.fallbackActive = desc("fallback_active",
		"1 while the timer runs, or would run, without the store. Absent otherwise.", "timer")
	m.paused = desc("paused",
		"1 while the timer is paused in the whole fleet, as far as this host knows. Absent otherwise.", "timer")
	m.scheduleFailed = desc("schedule_failed",
		"1 while the timer is not due because its schedule failed. Absent otherwise.", "timer")
	m.overdueRuns = desc("runs_overdue",
		"Runs on this host that are past MaxRunTime and ignore their context. Absent while there are none.", "timer")
	m.lastSuccess = desc("last_success_timestamp_seconds",
		"When a run of the timer last succeeded on any host, as far as this host knows.", "timer")
	m.alarmActive = desc("alarm_active",
		"1 after AlarmAfter ticks came due without a successful run on any host, as far as this host knows. Absent "+
			"otherwise.", "timer")
	m.breaker = desc("store_breaker_open",
		"1 while ticks do not call the store because several calls in a row failed.", "store")
	m.up = desc("store_up", "1 if the store answered the last call and is set up right.", "store")
	m.hosts = desc("hosts",
		"Schedulers last seen on this store, including this one. Absent until first counted.")
	m.droppedEvents = desc("hook_events_dropped_total",
		"Events of Config.Hooks dropped because a hook was too slow.")
	m.waiting = desc("runs_waiting", "Ticks and triggers on this host that wait for one of MaxRuns places.")
	m.limitRuns = desc("limit_runs", "Runs on this host that hold the limit, which timers share.", "limit")
	m.limitSize = desc("limit_size", "Size of the limit on this host: runs that may hold it in the fleet.", "limit")
	m.limitElsewhere = desc("limit_size_elsewhere",
		"Size of the limit on other hosts while they disagree; else 0.", "limit")
	m.build = desc("build_info", "Always 1. The labels are the versions of tickslot and Go.", "version", "go_version")
	if s.store != nil {
		s.store.metrics = newStoreMetrics(s.store.label, m.bounds(callBounds), m.bounds(runBounds))
	}
	return m
}

// bounds returns the bucket bounds of a histogram, or nil if it is native.
func (m *metrics) bounds(classic []float64) []float64 {
	if m.classic {
		return classic
	}
	return nil
}

// newTally returns a tally with the label of a new timer. It returns nil if the timer has its own
// tally, or if there are no metrics. It calls user code.
func (m *metrics) newTally(timer string) *tally {
	if m == nil || m.labeler.of == nil {
		return nil
	}
	return &tally{label: m.labeler.label(timer), classic: m.classic}
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
	for _, d := range m.descs {
		ch <- d
	}
	for _, c := range m.kept() {
		c.Describe(ch)
	}
}

// kept returns the metrics that are stored as Prometheus types.
func (m *metrics) kept() []prometheus.Collector {
	if m.scheduler.store == nil {
		return nil
	}
	return m.scheduler.store.metrics.collectors
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.kept() {
		c.Collect(ch)
	}
	w := series{classic: m.classic}
	m.writeHost(&w)
	w.send(ch)
	together := make(map[*tally]*levels) // the timers that share a label
	for _, s := range m.scheduler.registry.all() {
		if m.labeler.of != nil {
			m.join(together, s)
			continue
		}
		var l levels
		if t, ok := m.look(s, &l); ok {
			m.write(&w, s.timer.Name, t, &l)
			w.send(ch)
		}
	}
	for t, l := range together {
		m.write(&w, t.label, t, l)
		w.send(ch)
	}
}

// join adds the gauges of a timer to the gauges of its label, unless the timer has ended.
func (m *metrics) join(together map[*tally]*levels, s *settings) {
	t := s.entry.record.tally // set when the timer was registered
	l := together[t]
	if l == nil {
		l = &levels{}
	}
	if _, ok := m.look(s, l); ok {
		together[t] = l
	}
}

// write adds the series of a timer or of a label.
func (m *metrics) write(w *series, label string, t *tally, l *levels) {
	if t == nil { // nothing was counted yet
		t = &tally{}
	}
	m.writeTally(w, label, t, l)
	m.writeLevels(w, label, l)
}

// writeHost adds the series that do not belong to a timer.
func (m *metrics) writeHost(w *series) {
	s := m.scheduler
	w.gauge(m.build, 1, version(), runtime.Version())
	hosts := 1
	if s.store != nil {
		hosts = s.store.hostsSeen()
		if called, up, open := s.store.gauges(); called {
			w.gauge(m.up, oneIf(up), s.store.label)
			w.gauge(m.breaker, oneIf(open), s.store.label)
		}
	}
	if hosts > 0 {
		w.gauge(m.hosts, float64(hosts))
	}
	w.counter(m.droppedEvents, s.events.queue.Dropped())
	waiting, _ := s.waiting.queued()
	w.gauge(m.waiting, float64(waiting))
	for _, l := range s.limits.status() {
		w.gauge(m.limitRuns, float64(l.Runs), l.Name)
		w.gauge(m.limitSize, float64(l.Size), l.Name)
		w.gauge(m.limitElsewhere, float64(l.SizeElsewhere), l.Name)
	}
}

// levels are the gauges of a timer, or of the timers that share a label.
type levels struct {
	// Whether any of the timers has a schedule, uses the store, or may retry.
	scheduled, shared, retries bool

	active, held, overdue, limit, elsewhere int
	bound                                   float64
	fallback, paused, scheduleFailed, alarm int       // numbers of timers
	success                                 time.Time // the earliest of their last successes; zero if none is known
}

// look adds the gauges of a timer and returns its tally, or nil if nothing was counted yet. ok is
// false if the timer has ended.
func (m *metrics) look(set *settings, l *levels) (t *tally, ok bool) {
	s, e := m.scheduler, set.entry
	e.mu.Lock() // so that no run of the timer begins or ends in the meantime
	defer e.mu.Unlock()
	if set.isOver() {
		return nil, false
	}
	var st TimerStatus // the fields that views and overrides fill in
	if s.store != nil {
		s.store.views.fill(set, &st)
		s.store.overrides.fill(set, &st)
	}
	l.scheduled = l.scheduled || set.timer.Schedule != nil
	l.shared = l.shared || set.shared()
	l.retries = l.retries || set.timer.Retry.MaxAttempts > 1
	l.active += e.count((*Run).any)
	l.held += e.count((*Run).holds)
	l.overdue += int(e.overdue.Load())
	l.limit += min(set.limit(), driver.MaxSlots)
	l.bound += boundValue(set.bound(s.store))
	l.elsewhere = max(l.elsewhere, st.LimitElsewhere)
	l.fallback += intIf(st.Fallback)
	l.scheduleFailed += intIf(e.ticks.scheduleFault() != "")
	l.paused += intIf(st.Paused != nil)
	l.alarm += intIf(!set.removed() && e.record.deadman.alarmed(set.timer))
	if at := e.record.deadman.success; !at.IsZero() && (l.success.IsZero() || at.Before(l.success)) {
		l.success = at
	}
	return e.record.tally, true
}

// writeLevels adds the gauges of a tally. It omits gauges that are 0 in normal operation, because
// they would be a third of all series. Alerts compare them with 0 or 1, so an absent series does
// not fire either.
func (m *metrics) writeLevels(w *series, label string, l *levels) {
	w.gauge(m.active, float64(l.active), label)
	w.gauge(m.slotsLimit, float64(l.limit), label)
	if l.shared {
		w.gauge(m.slotsHeld, float64(l.held), label)
	}
	if l.bound != float64(l.limit) {
		w.gauge(m.bound, l.bound, label)
	}
	for _, g := range []struct {
		desc  *prometheus.Desc
		value int
	}{{m.slotsElsewhere, l.elsewhere}, {m.overdueRuns, l.overdue}, {m.fallbackActive, l.fallback},
		{m.scheduleFailed, l.scheduleFailed}, {m.paused, l.paused}, {m.alarmActive, l.alarm}} {
		if g.value != 0 {
			w.gauge(g.desc, float64(g.value), label)
		}
	}
	if !l.success.IsZero() {
		w.gauge(m.lastSuccess, float64(l.success.UnixMilli())/1000, label)
	}
}

// countedFromStart lists the outcomes that alerts use. Their counters exist, at 0, before the first
// run, because Prometheus sees no increase in a counter that starts at 1.
var countedFromStart = []string{string(OutcomeOK), string(OutcomeFailed), string(OutcomePanicked),
	string(OutcomeTimedOut)}

// writeTally adds the counters of a tally. A counter that no alert uses appears after its first
// count.
func (m *metrics) writeTally(w *series, label string, t *tally, l *levels) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.createdAt = t.createdAt
	if l.scheduled || t.started > 0 {
		w.counter(m.ticks, t.started, label, "started")
	}
	for _, c := range t.skipped {
		result := c.name
		if result != string(ReasonMissed) {
			result = "skipped_" + result
		}
		w.counter(m.ticks, c.n, label, result)
	}
	for _, outcome := range countedFromStart {
		if t.runs.of(outcome) == 0 {
			w.counter(m.runs, 0, label, outcome)
		}
	}
	w.counters(m.runs, t.runs, label)
	w.counters(m.triggers, t.triggers, label)
	for _, c := range []struct {
		desc  *prometheus.Desc
		n     uint64
		there bool // whether the counter exists even at 0
	}{{m.leasesLost, t.leasesLost, l.shared}, {m.retries, t.retries, l.retries},
		{m.overlongHolds, t.overlongHolds, false}, {m.fallbackRuns, t.fallbackRuns, false}} {
		if c.there || c.n > 0 {
			w.counter(c.desc, c.n, label)
		}
	}
	w.histogram(m.tickLag, callBounds, &t.lag, label)
	w.histogram(m.runDuration, runBounds, &t.took, label)
}

// A series collects metrics while a mutex is held, and sends them after it is unlocked.
type series struct {
	classic   bool
	createdAt time.Time // when counting began; zero if not known
	list      []prometheus.Metric
}

func (s *series) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.list = append(s.list, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
}

func (s *series) counter(d *prometheus.Desc, n uint64, labels ...string) {
	if s.createdAt.IsZero() {
		s.list = append(s.list, prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...))
		return
	}
	s.list = append(s.list, prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, float64(n),
		s.createdAt, labels...))
}

// counters adds one counter for each name.
func (s *series) counters(d *prometheus.Desc, list counts, label string) {
	for _, c := range list {
		s.counter(d, c.n, label, c.name)
	}
}

// histogram adds a histogram, unless it is empty.
func (s *series) histogram(d *prometheus.Desc, bounds []float64, h *histogram, label string) {
	switch n := h.count(); {
	case n == 0:
	case s.classic:
		s.list = append(s.list, prometheus.MustNewConstHistogramWithCreatedTimestamp(d, n, h.sum, h.classic(bounds),
			s.createdAt, label))
	default:
		buckets, zero := h.native()
		s.list = append(s.list, prometheus.MustNewConstNativeHistogram(d, n, h.sum, buckets, nil, zero, nativeSchema,
			nativeZeroThreshold, s.createdAt, label))
	}
}

func (s *series) send(ch chan<- prometheus.Metric) {
	for _, m := range s.list {
		ch <- m
	}
	clear(s.list)
	s.list = s.list[:0]
}

// boundValue returns the bound, or +Inf if there is none or it is not known, so that an alert that
// compares it with a limit fires.
func boundValue(bound int) float64 {
	if bound == unlimited || bound == 0 {
		return math.Inf(1)
	}
	return float64(bound)
}

func oneIf(yes bool) float64 { return float64(intIf(yes)) }

func intIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
