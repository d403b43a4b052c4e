package timer

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// defaultDrainTimeout is the default of Config.DrainTimeout.
	defaultDrainTimeout = 30 * time.Second
	// CancelGrace is how long Run waits for handlers to return after it has canceled their
	// contexts, which it does after Config.DrainTimeout.
	CancelGrace = 5 * time.Second
)

// Config has the settings that all timers of a Scheduler share. The zero value is valid: one
// process, no metrics. New returns all faults of the settings at once.
type Config struct {
	// Store enforces the limits of the timers across the fleet. All hosts with the same store and
	// prefix form one fleet. Default nil: this process is the whole fleet.
	Store dlock.DistributedLock

	// Logger receives the limits of timers when they are registered, lost leases, failed runs, and
	// each change of the store's state. An outage is logged with one line when it begins and one
	// when it ends, for all timers together. An outage that begins within a minute of a logged
	// outage is not logged. At level Debug, Logger also receives each run and each skipped tick:
	// see "Lines in the log" in the package documentation. If Logger panics, the line is lost.
	// Default slog.Default().
	Logger *slog.Logger

	// Hooks report events on this host. They run in their own goroutine. Default: none.
	Hooks Hooks

	// Middleware wraps the Run of every timer. The first is the outermost. None may be nil.
	// Default: none.
	Middleware []Middleware

	// Registerer is where New registers the scheduler's metrics, whose names begin with tickslot_.
	// They are unregistered when Run returns. Two schedulers that run at the same time need
	// separate registries, or prometheus.WrapRegistererWith. Default nil: no metrics.
	Registerer prometheus.Registerer

	// TimerLabel returns the value of the metric label timer for a timer's name, so that several
	// timers can share their series: "report" for "report:tenant-7". It is called once per timer,
	// when New, Register or a Manager registers the timer. The registration waits for it. The label
	// is OtherLabel if TimerLabel panics, or if it returns a text that is empty, longer than
	// MaxNameLen bytes, or not UTF-8. Default: the timer's name.
	//
	// Shared series are sums, with these exceptions: fallback_active, paused, schedule_failed and
	// alarm_active count timers, slots_limit_elsewhere is the largest value, and
	// last_success_timestamp_seconds is the oldest. The series end when the last timer with the
	// label is removed.
	TimerLabel func(timer string) string

	// ClassicHistograms makes histograms use fixed buckets, for a Prometheus that does not scrape
	// native histograms. Each bucket is a series. Default false: histograms are native.
	ClassicHistograms bool

	// Limits are the limits that several timers share: see Timer.Limits. Default: none.
	Limits []Limit

	// MaxRuns limits how many runs of all timers may be in progress at once on this host. A run
	// counts from the moment the host asks the store for its slot. 1 or more; NoLimit is the same
	// as 0. Default 0: no limit.
	MaxRuns int

	// OnMaxRuns decides what happens to a tick or a Trigger while MaxRuns runs are in progress.
	// Default MaxRunsWait.
	OnMaxRuns MaxRunsPolicy

	// MaxWait is how long a tick or a Trigger may wait in line for one of MaxRuns places
	// (MaxRunsWait), and how long a tick may wait for a slot (FullWait). It bounds the sum of both
	// waits. After that, the tick is skipped or the Trigger refused. Default 1 h.
	MaxWait time.Duration

	// TTL is how long the slot of a dead host remains taken. Leases are renewed every TTL/3. TTL
	// must be at least three times StoreTimeout, at most 24 h, and at most what the store accepts
	// (on Redis, its QuarantineTTL, which is 30 s unless raised). Default 15 s.
	TTL time.Duration

	// StoreTimeout bounds every call to the store. If an acquire has no answer after half of
	// StoreTimeout, the request is sent again. 1 ms to TTL/3. Default 1 s.
	StoreTimeout time.Duration

	// PreStopDelay is how long Run continues to start runs after its context has ended. During this
	// time Ready already returns an error, so that load balancers stop sending requests. Default 0.
	PreStopDelay time.Duration

	// DrainTimeout is how long Run then waits for handlers to return before it cancels their
	// contexts. After that, Run waits for up to CancelGrace (5 s). Default 30 s.
	DrainTimeout time.Duration

	// Blackouts are periods in which no timer's schedule starts a run. Timer.Blackouts adds to
	// them. Default: none.
	Blackouts []schedule.Blackout

	// Holder identifies this host to operators, in the store and in logs. Default: the host name,
	// the process id and a random part.
	Holder dlock.Holder
}

func (c Config) withDefaults() Config {
	c.Logger = mask.Logger(c.Logger)
	if c.TTL == 0 {
		c.TTL = dlock.DefaultTTL
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = dlock.DefaultStoreTimeout
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrainTimeout
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.Holder == (dlock.Holder{}) {
		c.Holder = dlock.NewHolder()
	}
	return c
}

func (c Config) check() error {
	var errs []error
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"PreStopDelay", c.PreStopDelay}, {"DrainTimeout", c.DrainTimeout}, {"MaxWait", c.MaxWait}} {
		if d.value < 0 {
			errs = append(errs,
				fmt.Errorf("timer: Config.%s: %v is negative: use a positive duration, or 0 for the default", d.field,
					d.value))
		}
	}
	errs = append(errs, checkLimits(c.Limits)...)
	for i, l := range c.Limits {
		if err := checkSlots(c.Store, l.Size); err != nil {
			errs = append(errs, fmt.Errorf("timer: Config.Limits[%d] %.60q: Size: %w", i, l.Name, err))
		}
	}
	if c.MaxRuns < 0 && c.MaxRuns != NoLimit {
		errs = append(errs, fmt.Errorf("timer: Config.MaxRuns: %d is negative: use a positive number, or 0 for no "+
			"limit", c.MaxRuns))
	}
	if c.OnMaxRuns > MaxRunsSkip {
		errs = append(errs, fmt.Errorf("timer: Config.OnMaxRuns: %d is not a policy: use timer.MaxRunsWait or "+
			"timer.MaxRunsSkip", c.OnMaxRuns))
	}
	for i, b := range c.Blackouts {
		for _, err := range schedule.CheckBlackout(b) {
			errs = append(errs, fmt.Errorf("timer: Config.Blackouts[%d]: %w", i, err))
		}
		if err := schedule.CheckSharedBlackout(b); err != nil && c.Store != nil {
			errs = append(errs, fmt.Errorf("timer: Config.Blackouts[%d]: %w", i, err))
		}
	}
	for i, m := range c.Middleware {
		if m == nil {
			errs = append(errs, fmt.Errorf("timer: Config.Middleware[%d]: it is nil: take it out", i))
		}
	}
	return errors.Join(errs...)
}

func (c Config) lease() dlock.SessionOptions {
	return dlock.SessionOptions{TTL: c.TTL, StoreTimeout: c.StoreTimeout, Holder: c.Holder}
}

// check returns every fault of the timer. Each error names the timer, the field, the value and how
// to fix it. fleet says whether there is a store.
func (t Timer) check(fleet bool) error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("timer %.60q: %s: "+format, append([]any{t.Name, field}, args...)...))
	}
	checkName(t.Name, t.lockName(), "timer", fault)
	if t.Run == nil {
		fault("Run", "it is nil: set the function that does the work")
	}
	claims := fleet && !t.LocalOnly && t.MaxPerTick != NoLimit
	t.checkSchedule(claims, fault)
	t.checkRunOnStart(fleet && !t.LocalOnly, claims, fault)
	limit := func(field string, value int) bool {
		switch {
		case value == NoLimit || value >= 0 && value <= maxLimit:
			return true
		case value < 0:
			fault(field, "%d is negative: use 1 to %d, 0 for the default, or timer.NoLimit", value, maxLimit)
		default:
			fault(field,
				"%d is more than %d: a store keeps a record per slot, so use a smaller number, or timer.NoLimit", value,
				maxLimit)
		}
		return false
	}
	inFleet, onHost := limit("MaxConcurrency", t.MaxConcurrency), limit("MaxPerHost", t.MaxPerHost)
	if limit("MaxPerTick", t.MaxPerTick) && fleet && t.sharesTicks() {
		t.checkPerTick(fault)
	}
	if concurrency := max(limitOf(t.MaxConcurrency), 1); inFleet && onHost && t.MaxPerHost > concurrency &&
		t.MaxPerHost != NoLimit {
		fault("MaxPerHost",
			"%d is more than MaxConcurrency (%d), which one host cannot exceed either: lower it, or raise "+
				"MaxConcurrency",
			t.MaxPerHost, concurrency)
	}
	if t.MaxRunTime < 0 && t.MaxRunTime != NoLimit {
		fault("MaxRunTime", "%v is negative: use a positive duration, 0 for %v, or timer.NoLimit", t.MaxRunTime,
			defaultMaxRunTime)
	}
	t.Retry.check(timeOf(t.MaxRunTime), fault)
	if t.AlarmAfter < 0 && t.AlarmAfter != NoLimit {
		fault("AlarmAfter", "%d is negative: use a number of ticks, 0 for %d, or timer.NoLimit", t.AlarmAfter,
			defaultAlarmAfter)
	}
	for i, b := range t.Blackouts {
		for _, err := range schedule.CheckBlackout(b) {
			fault(fmt.Sprintf("Blackouts[%d]", i), "%w", err)
		}
		if err := schedule.CheckSharedBlackout(b); err != nil && claims {
			fault(fmt.Sprintf("Blackouts[%d]", i), "%w", err)
		}
	}
	if t.CatchUp.Policy > CatchUpOnce {
		fault("CatchUp.Policy", "%d is not a policy: use timer.CatchUpOnce or timer.CatchUpSkip", t.CatchUp.Policy)
	}
	if t.CatchUp.Policy == CatchUpOnce && t.Schedule == nil {
		fault("CatchUp.Policy", "a timer without a Schedule misses nothing: take it out, or set a Schedule")
	}
	if t.CatchUp.Window < 0 && t.CatchUp.Window != NoLimit {
		fault("CatchUp.Window", "%v is negative: use a positive duration, 0 for %v, or timer.NoLimit", t.CatchUp.Window,
			defaultCatchUpWindow)
	}
	if !(t.Delay.Jitter >= 0 && t.Delay.Jitter <= maxJitter) { // also false for NaN
		fault("Delay.Jitter", "%v: use 0 to %v, a share of the time between two ticks", t.Delay.Jitter, maxJitter)
	}
	if t.Delay.ByTimer < 0 || t.Delay.ByTimer > maxDelay {
		fault("Delay.ByTimer", "%v: use 0 to %v", t.Delay.ByTimer, maxDelay)
	}
	if t.Delay.ByHost < 0 || t.Delay.ByHost > maxDelay {
		fault("Delay.ByHost", "%v: use 0 to %v", t.Delay.ByHost, maxDelay)
	}
	if t.Delay.ByHost > 0 && t.MaxPerTick != NoLimit {
		fault("Delay.ByHost",
			"it makes hosts start a tick at different times, so the first ones would take it: set MaxPerTick to "+
				"timer.NoLimit, or use ByTimer")
	}
	if t.OnFull > FullWait {
		fault("OnFull", "%d is not a policy: use timer.FullSkip or timer.FullWait", t.OnFull)
	}
	if t.OnStoreDown > StoreDownSkip {
		fault("OnStoreDown", "%d is not a policy: use timer.StoreDownRunLocal or timer.StoreDownSkip", t.OnStoreDown)
	}
	return errors.Join(errs...)
}

// checkSlots returns an error if the store cannot keep as many slots as the timer needs.
func (t Timer) checkSlots(store dlock.DistributedLock) error {
	if t.LocalOnly || t.MaxConcurrency == NoLimit {
		return nil
	}
	if err := checkSlots(store, t.MaxConcurrency); err != nil {
		return fmt.Errorf("timer %.60q: MaxConcurrency: %w", t.Name, err)
	}
	return nil
}

// checkSlots returns an error if the store cannot keep that many leases of a semaphore. It does not
// check a number that means no limit. Such a semaphore, for example the semaphore of the hosts, has
// as many leases as there are hosts.
func checkSlots(store dlock.DistributedLock, slots int) error {
	bounder := driver.CapabilitiesOf(store).SlotBounder
	if bounder == nil || slots < 1 || slots > maxLimit { // no bound, no limit, or an error reported elsewhere
		return nil
	}
	return guard.Call("store", func() error {
		if most := bounder.MaxSlots(); slots > most {
			return fmt.Errorf("%d: the store (%s) bears %d at once: use at most that, or redislock or sqllock", slots,
				storeLabel(store), most)
		}
		return nil
	})
}

// checkName validates the name of a timer or a limit.
func checkName(name, lockName, what string, fault func(string, string, ...any)) {
	switch {
	case name == "":
		fault("Name", "it is empty: give the %s a name", what)
	case len(name) > MaxNameLen:
		fault("Name", "it is %d bytes long: use at most %d", len(name), MaxNameLen)
	case !utf8.ValidString(name):
		fault("Name", "%q is not valid UTF-8: use text", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		fault("Name", "%q has a control character: take it out", name)
	default:
		if err := driver.CheckName(lockName); err != nil {
			fault("Name", "%v", err)
		}
	}
}

// sharesTicks reports whether hosts that share a store may start several runs of one tick, so that
// MaxPerTick matters. It is false for a timer that is only triggered. It is also false with
// schedule.After, whose runs never overlap.
func (t Timer) sharesTicks() bool {
	_, fixed := t.Schedule.(schedule.FixedDelay)
	return t.Schedule != nil && !fixed && !t.LocalOnly && limitOf(t.MaxConcurrency) > 1
}

// checkPerTick reports a timer that allows overlapping runs but does not set MaxPerTick. No default
// would be safe. With 1, a timer that splits its work among hosts would be idle on all hosts but
// one. With more than 1, a timer that sends an email would send it several times.
func (t Timer) checkPerTick(fault func(string, string, ...any)) {
	if t.MaxPerTick != 0 {
		return
	}
	concurrency, several := "timer.NoLimit", "timer.NoLimit, // every host runs each tick"
	if n := t.MaxConcurrency; n != NoLimit {
		concurrency, several = strconv.Itoa(n), fmt.Sprintf("%d, // up to %d hosts run each tick", n, n)
	}
	fault("MaxPerTick", "say how many hosts may run each tick, which does not follow from MaxConcurrency: %s. Add one "+
		"of these lines:\n\tMaxPerTick: 1, // each tick runs once in the fleet\n\tMaxPerTick: %s", concurrency, several)
}

// checkSchedule reports the faults of the schedule. claims means that hosts claim ticks, and
// therefore have to agree on them.
func (t Timer) checkSchedule(claims bool, fault func(string, string, ...any)) {
	if t.Schedule == nil {
		return
	}
	faults := schedule.Check(t.Schedule)
	for _, err := range faults {
		fault("Schedule", "%w", err)
	}
	if !claims || len(faults) > 0 {
		return
	}
	if err := schedule.CheckShared(t.Schedule); err != nil {
		fault("Schedule", "%w; or set MaxPerTick to timer.NoLimit, or LocalOnly, if each host runs its own ticks", err)
	}
}
