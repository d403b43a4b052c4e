package lockmetrics

import (
	"errors"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

const (
	// defaultMaxLabels is the default of Options.MaxLabels.
	defaultMaxLabels = 100

	// OtherLabel is the label of locks beyond Options.MaxLabels and of locks without a usable
	// label.
	OtherLabel = "other"
)

// Options are the settings of Metrics. The zero value suits up to 100 lock names.
type Options struct {
	// Label returns the value of the metric label lock for a lock's name. Locks with the same label
	// share their series, for example "order" for "order:17". Label is called for every event,
	// sometimes on the goroutine that called the store, and possibly concurrently. So it must be
	// fast and must not block. If Label panics or returns a text that is empty, longer than 256
	// bytes or not UTF-8, the label is OtherLabel. Default: the lock's name.
	Label func(name string) string

	// MaxLabels is the maximum number of values of the label lock. The first values are kept, and
	// all later ones share OtherLabel. Values below 1 select the default. Default 100.
	MaxLabels int

	// ClassicHistograms selects fixed buckets, for a Prometheus server that does not scrape native
	// histograms. Each bucket is a series. Default false: histograms are native.
	ClassicHistograms bool
}

// Metrics are the metrics of one or more sessions. Register them and pass Hooks to the sessions.
type Metrics struct {
	options Options

	attempts, renewals, lost, expired *prometheus.CounterVec
	wait, hold                        *prometheus.HistogramVec
	callTook                          *prometheus.HistogramVec
	callFailed                        *prometheus.CounterVec

	beginOther sync.Once

	mu     sync.RWMutex
	labels map[string]bool // labels in use, without OtherLabel
}

var (
	callBounds  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	leaseBounds = []float64{.001, .01, .1, .5, 1, 5, 15, 60, 300, 900, 3600}
)

// New returns metrics with nothing counted. To register two Metrics in one registry, distinguish
// them with prometheus.WrapRegistererWith.
func New(o Options) *Metrics {
	if o.MaxLabels <= 0 {
		o.MaxLabels = defaultMaxLabels
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tickslot", Subsystem: "lock", Name: name,
			Help: help}, labels)
	}
	histogram := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Namespace: "tickslot", Subsystem: "lock", Name: name, Help: help}
		if o.ClassicHistograms {
			opts.Buckets = bounds
		} else { // as for timers, each bucket is 19 % wider than the one before
			opts.NativeHistogramBucketFactor, opts.NativeHistogramZeroThreshold = 1.2, 0x1p-20
			opts.NativeHistogramMaxBucketNumber = 160
		}
		return prometheus.NewHistogramVec(opts, labels)
	}
	m := &Metrics{
		options: o,
		labels:  make(map[string]bool),
		attempts: counter("attempts_total", "Calls to the store to acquire a lock, by result: acquired, the reason "+
			"of a refusal, error, or canceled by the caller.", "lock", "result"),
		renewals: counter("renewals_total", "Renewals of leases, by result: ok, lost, or unknown.", "lock", "result"),
		lost:     counter("lost_total", "Leases lost before they were released.", "lock"),
		expired: counter("expired_total", "Leases acquired here after the previous holder let its lease expire.",
			"lock"),
		wait: histogram("wait_duration_seconds", "How long callers waited for the locks that they got.", leaseBounds,
			"lock"),
		hold:       histogram("hold_duration_seconds", "How long leases were held.", leaseBounds, "lock"),
		callTook:   histogram("store_call_duration_seconds", "Duration of calls to the store.", callBounds, "op"),
		callFailed: counter("store_errors_total", "Calls to the store that failed or were not answered.", "op"),
	}
	for _, op := range []dlock.StoreOp{dlock.StoreOpAcquire, dlock.StoreOpExtend, dlock.StoreOpRelease} {
		m.callTook.WithLabelValues(string(op))
		m.callFailed.WithLabelValues(string(op))
	}
	return m
}

// Hooks returns hooks that count each event and then call the corresponding hook of own if it is
// set.
func (m *Metrics) Hooks(own dlock.Hooks) dlock.Hooks {
	return dlock.Hooks{
		Called:   then(m.called, own.Called),
		Acquired: then(m.acquired, own.Acquired),
		Lost:     then(func(e dlock.LeaseEnded) { m.ended(e, true) }, own.Lost),
		Released: then(func(e dlock.LeaseEnded) { m.ended(e, false) }, own.Released),
	}
}

func then[T any](count, own func(T)) func(T) {
	if own == nil {
		return count
	}
	return func(e T) {
		count(e)
		own(e)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.renewals, m.lost, m.expired, m.wait, m.hold, m.callTook, m.callFailed}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *Metrics) called(c dlock.StoreCall) {
	m.callTook.WithLabelValues(string(c.Op)).Observe(c.Took.Seconds())
	result := resultOf(c)
	if result == "error" {
		m.callFailed.WithLabelValues(string(c.Op)).Inc()
	}
	switch c.Op {
	case dlock.StoreOpAcquire:
		m.attempts.WithLabelValues(m.label(c.Name), result).Inc()
	case dlock.StoreOpExtend:
		if c.Canceled { // the session was closed
			return
		}
		for i, g := range c.Grants {
			outcome := driver.GrantUnknown
			if c.Err == nil {
				outcome = c.Results[i].Outcome
			}
			m.renewals.WithLabelValues(m.label(g.Name), outcome.String()).Inc()
		}
	}
}

func (m *Metrics) acquired(e dlock.LeaseAcquired) {
	label := m.label(e.Name)
	m.wait.WithLabelValues(label).Observe(e.Wait.Seconds())
	if e.PreviousExpired {
		m.expired.WithLabelValues(label).Inc()
	}
}

func (m *Metrics) ended(e dlock.LeaseEnded, lost bool) {
	label := m.label(e.Name)
	m.hold.WithLabelValues(label).Observe(e.HeldFor.Seconds())
	if lost {
		m.lost.WithLabelValues(label).Inc()
	}
}

// resultOf returns the label value for the result of a call. Reasons that this package does not
// know become OtherLabel, because a store may return any number of them.
func resultOf(c dlock.StoreCall) string {
	switch {
	case c.Err == nil:
		return "acquired" // the result of an acquire
	case !c.Refused() && c.Canceled:
		return "canceled"
	case !c.Refused():
		return "error"
	}
	no, ok := errors.AsType[*dlock.NotAcquiredError](c.Err)
	if !ok {
		return OtherLabel
	}
	switch no.Reason {
	case driver.ReasonFull, driver.ReasonPaused, driver.ReasonQuarantine, driver.ReasonLimitFull,
		driver.ReasonLimitRate, driver.ReasonTickTaken,
		driver.ReasonTickLate, driver.ReasonTickAhead, driver.ReasonTickFirst, driver.ReasonTickHeld,
		driver.ReasonTickEarly:
		return string(no.Reason)
	}
	return OtherLabel
}

// label returns the value of the label lock for a name. It is OtherLabel if Options.Label returns
// no usable label, or if MaxLabels other labels are in use.
func (m *Metrics) label(name string) string {
	if m.options.Label != nil {
		name = callLabel(m.options.Label, name)
	}
	if name == "" || name == OtherLabel || len(name) > driver.MaxNameLen || !utf8.ValidString(name) {
		return m.other()
	}
	m.mu.RLock()
	known, full := m.labels[name], len(m.labels) >= m.options.MaxLabels
	m.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return m.other()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.labels[name] {
		if len(m.labels) >= m.options.MaxLabels {
			return m.other()
		}
		m.labels[name] = true
		m.begin(name)
	}
	return name
}

func (m *Metrics) other() string {
	m.beginOther.Do(func() { m.begin(OtherLabel) })
	return OtherLabel
}

// begin creates the counters that alerts use with the value 0. Prometheus sees no increase in a
// counter whose first value is 1.
func (m *Metrics) begin(label string) {
	m.attempts.WithLabelValues(label, "acquired")
	m.lost.WithLabelValues(label)
	m.expired.WithLabelValues(label)
}

func callLabel(of func(string) string, name string) (label string) {
	defer func() {
		if recover() != nil {
			label = OtherLabel
		}
	}()
	return of(name)
}
