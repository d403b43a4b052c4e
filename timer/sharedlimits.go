package timer

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/startlog"
)

// A Limit bounds how many runs of several timers may be in progress at once in the fleet: the runs
// of all timers that list it in Timer.Limits. It is a semaphore in the store, limit:<name>. A run
// holds a slot of the limit in addition to the slot of its own timer. Without a store, the limit
// holds for this Scheduler only.
type Limit struct {
	// Name identifies the limit in the fleet. It follows the same rules as Timer.Name. Required.
	Name string

	// Size is how many runs may be in progress at once. If hosts have different sizes, as during a
	// rolling deployment, together they never exceed the largest. 1 to 10,000. Required without a
	// Rate; with a Rate, default 10,000.
	Size int

	// Rate and Per bound how many runs start in the fleet: at most Rate within any period of length
	// Per, by the store's clock. Set both or neither.
	//
	// A start counts once, when the store grants it, whatever the outcome of the run. The run
	// begins when the store's answer arrives, up to StoreTimeout later. A tick that comes too early
	// is skipped (ReasonLimitRate). With FullWait the tick instead waits until, according to the
	// store, a start is allowed. With a Rate over 60, a start may count for up to a sixtieth of Per
	// longer.
	//
	// Hosts with different rates count the same starts, each against its own rate, so together they
	// never exceed the larger rate. Without the store (StoreDownRunLocal), each host enforces the
	// rate separately.
	//
	// Rate is 1 to 1e9. Per is 100 ms to 30 days. On SQL, Per plus a sixtieth of it must be shorter
	// than the store's Options.Retention. Default 0: starts are not limited.
	Rate int
	Per  time.Duration
}

// spec returns the limit in the form that the store takes.
func (l Limit) spec() dlock.SemaphoreSpec {
	return dlock.SemaphoreSpec{Name: l.lockName(), Slots: cmp.Or(l.Size, driver.MaxSlots), Rate: l.Rate, Per: l.Per}
}

// lockName returns the limit's name in the store. Its slots are limit:<name>:slot:<i>.
func (l Limit) lockName() string { return "limit:" + l.Name }

// limits are the limits of Config.Limits, with the runs on this host that hold them. Any part may
// use limits, which use no other part.
type limits struct {
	log      *lineLog
	registry *registry
	multi    driver.SharedLimiter // nil if the store takes only one lock at a time, or there is no store
	rates    driver.RateLimiter   // nil if the store cannot enforce a rate, or there is no store
	store    string               // the name of the store; "" without a store
	byName   map[string]*sharedLimit
}

// A sharedLimit is one limit on this host.
type sharedLimit struct {
	Limit

	degraded atomic.Int32 // runs that continue without the store; counted by views

	// registry.mu guards these fields.
	runs      int          // runs on this host that hold it, or would hold it if the store answered
	starts    startlog.Log // the starts of such runs, if there is a Rate
	elsewhere int          // Size on other hosts if it differs, else 0
	heardOf   time.Time    // when the store last reported elsewhere
}

func newLimits(config Config, log *lineLog, g *registry) *limits {
	l := &limits{log: log, registry: g, byName: make(map[string]*sharedLimit, len(config.Limits))}
	if config.Store != nil {
		caps := driver.CapabilitiesOf(config.Store)
		l.multi, l.rates, l.store = caps.SharedLimiter, caps.RateLimiter, storeLabel(config.Store)
	}
	for _, limit := range config.Limits {
		l.byName[limit.Name] = &sharedLimit{Limit: limit}
	}
	return l
}

// checkLimits returns every fault of Config.Limits.
func checkLimits(list []Limit) (errs []error) {
	seen := make(map[string]bool, len(list))
	for i, l := range list {
		fault := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("timer: Config.Limits[%d] %.60q: %s: "+format,
				append([]any{i, l.Name, field}, args...)...))
		}
		checkName(l.Name, l.lockName(), "limit", fault)
		if seen[l.Name] && l.Name != "" {
			fault("Name", "two limits have this name: each needs its own")
		}
		seen[l.Name] = true
		if l.Size < 0 || l.Size == 0 && l.Rate == 0 && l.Per == 0 || l.Size > maxLimit {
			fault("Size", "%d: use 1 to %d", l.Size, maxLimit)
		}
		if (l.Rate != 0 || l.Per != 0) && (l.Rate < 1 || l.Rate > driver.MaxRate) {
			fault("Rate", "%d: use 1 to %d, or 0 and no Per", l.Rate, driver.MaxRate)
		}
		if (l.Rate != 0 || l.Per != 0) && (l.Per < driver.MinPer || l.Per > driver.MaxPer) {
			fault("Per", "%v: use %v to %v, or 0 and no Rate", l.Per, driver.MinPer, driver.MaxPer)
		}
	}
	return errs
}

// of returns the limits of a timer, and every fault of Timer.Limits.
func (l *limits) of(t Timer) (list []*sharedLimit, errs []error) {
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("timer %.60q: Limits: "+format, append([]any{t.Name}, args...)...))
	}
	if len(t.Limits) > driver.MaxShared {
		fault("%d limits: use at most %d", len(t.Limits), driver.MaxShared)
	}
	if len(t.Limits) > 0 && t.LocalOnly {
		fault("a LocalOnly timer does not use the store, which keeps the limits: take them out, or LocalOnly")
	}
	var names []string
	for i, name := range t.Limits {
		limit := l.byName[name]
		switch {
		case limit == nil:
			fault("there is no limit %.60q: add it to Config.Limits, or take it out", name)
			continue
		case slices.Contains(t.Limits[:i], name):
			fault("%.60q is given twice: take it out once", name)
			continue
		}
		list, names = append(list, limit), append(names, limit.lockName())
	}
	if len(list) > 0 && l.store != "" && !t.LocalOnly {
		if err := cmp.Or(l.canTake(t.lockName(), names), l.canBound(list)); err != nil {
			fault("%w", err)
		}
	}
	return list, errs
}

// canTake returns why the store cannot take these locks in one step, or nil if it can.
func (l *limits) canTake(name string, shared []string) error {
	if l.multi == nil {
		return fmt.Errorf("the store (%s) takes one lock at a time: use redislock, sqllock or memlock, or take the "+
			"limits out", l.store)
	}
	return guard.Call("store", func() error { return l.multi.CheckShared(name, shared...) })
}

// canBound returns why the store cannot enforce the rates of these limits, or nil if it can.
func (l *limits) canBound(list []*sharedLimit) error {
	for _, s := range list {
		if s.Rate == 0 {
			continue
		}
		if l.rates == nil {
			return fmt.Errorf("the store (%s) cannot bound the rate of %q: use redislock, sqllock or memlock, or take "+
				"the Rate out", l.store, s.Name)
		}
		if err := guard.Call("store", func() error { return l.rates.CheckRate(s.Per) }); err != nil {
			return err
		}
	}
	return nil
}

// shares are the limits of a timer.
type shares struct {
	limits []*sharedLimit
	locks  []dlock.SemaphoreSpec // the same limits, in the form that the store takes
}

func newShares(list []*sharedLimit) *shares {
	if len(list) == 0 {
		return nil
	}
	s := &shares{limits: list}
	for _, l := range list {
		s.locks = append(s.locks, l.spec())
	}
	return s
}

// limits returns the limits that a timer shares with other timers.
func (s *settings) limits() []*sharedLimit {
	if s.shares == nil {
		return nil
	}
	return s.shares.limits
}

// locks returns the limits of a timer in the form that the store takes.
func (s *settings) locks() []dlock.SemaphoreSpec {
	if s.shares == nil {
		return nil
	}
	return s.shares.locks
}

// enter counts a run of a timer that is about to start. If the store has not granted the run, and a
// limit on this host is full or has reached its rate, enter returns why the run may not start.
func (l *limits) enter(set *settings, granted bool) (Reason, error) {
	if len(set.limits()) == 0 {
		return "", nil
	}
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	now := time.Now().UnixMicro()
	for _, s := range set.limits() {
		if !granted && s.Size > 0 && s.runs >= s.Size {
			return ReasonLimitFull, &limitFullError{limit: s.Name, runs: s.runs}
		}
		if wait := s.rateWait(now); !granted && wait > 0 {
			return ReasonLimitRate, &limitRateError{limit: s.Limit, wait: wait}
		}
	}
	for _, s := range set.limits() {
		s.runs++
		if s.Rate > 0 {
			s.starts = s.starts.Add(now, s.Rate, startlog.Micros(s.Per), 1)
		}
	}
	return "", nil
}

// rateWait returns how long this host must wait before it may start another run without the store.
// The caller holds the registry's mutex.
func (s *sharedLimit) rateWait(now int64) time.Duration {
	if s.Rate == 0 {
		return 0
	}
	per := startlog.Micros(s.Per)
	s.starts, _ = s.starts.Disbelieve(now, per, driver.MaxTickAhead.Microseconds())
	return time.Duration(s.starts.Wait(now, s.Rate, per)) * time.Microsecond
}

// leave undoes the count of enter. The caller holds the registry's mutex.
func (l *limits) leave(set *settings) {
	for _, s := range set.limits() {
		s.runs--
	}
}

// A limitFullError says that a limit is full on this host. The store was not called.
type limitFullError struct {
	limit string
	runs  int
}

func (l *limitFullError) Error() string {
	return fmt.Sprintf("this host has %d runs that hold the limit %q, so it did not ask the store", l.runs,
		l.limit)
}

// A limitRateError says that a limit has reached its rate on this host. The store was not called.
type limitRateError struct {
	limit Limit
	wait  time.Duration
}

func (l *limitRateError) Error() string {
	return fmt.Sprintf("the limit %q had its %d starts within %v on this host, so it did not ask the store: the "+
		"next is allowed in %v", l.limit.Name, l.limit.Rate, l.limit.Per, l.wait.Round(time.Millisecond))
}

// rateAgain returns how long to wait before trying a tick again that was refused because of a rate.
// The refusal says when the next start is allowed. The wait has a random part, so that the waiting
// hosts do not all call the store at the same time.
func rateAgain(no *dlock.NotAcquiredError, err error) (wait time.Duration, ok bool) {
	var per time.Duration
	if no != nil && no.Reason == driver.ReasonLimitRate {
		wait, per = no.ExpiresIn, no.Shared.Per
	} else if here, ok := err.(*limitRateError); ok {
		wait, per = here.wait, here.limit.Per
	} else {
		return 0, false
	}
	return wait + rand.N(min(per/100, 50*time.Millisecond)+time.Millisecond), true
}

// applyAnswer compares the sizes that an answer of the store reports with those of this host.
func (l *limits) applyAnswer(set *settings, lease *dlock.Lease, err error) {
	if len(set.limits()) == 0 {
		return
	}
	no := refusal(err)
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	if lease != nil {
		for i, g := range lease.Shared() {
			l.compareSize(set.limits()[i], g.Info.DeclaredSlots)
		}
	}
	for _, s := range set.limits() {
		if no != nil && no.Shared.Name == s.lockName() {
			l.compareSize(s, no.SharedInfo.DeclaredSlots)
		}
	}
}

// compareSize compares the size of a limit with a size that the store reports. The caller holds the
// registry's mutex.
func (l *limits) compareSize(s *sharedLimit, size int) {
	now := time.Now()
	switch agrees := size == 0 || size == s.spec().Slots; {
	case agrees && (s.elsewhere == 0 || now.Sub(s.heardOf) < disagreementWindow):
	case agrees:
		s.elsewhere = 0
	default:
		s.heardOf = now
		if size != s.elsewhere {
			s.elsewhere = size
			l.log.later(slog.LevelWarn, "timer: hosts disagree about the size of a limit: the larger number is in "+
				"force", "limit", s.Name, "here", s.Size, "elsewhere", size)
		}
	}
}

// status returns the limits, sorted by name.
func (l *limits) status() (list []LimitStatus) {
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	for _, s := range l.byName {
		list = append(list, LimitStatus{Name: s.Name, Size: s.spec().Slots, SizeElsewhere: s.elsewhere, Runs: s.runs,
			Rate: s.Rate, Per: s.Per})
	}
	slices.SortFunc(list, func(a, b LimitStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// disagreements returns an error for each limit whose size differs on other hosts.
func (l *limits) disagreements() (errs []error) {
	for _, s := range l.status() {
		if s.SizeElsewhere != 0 {
			errs = append(errs, fmt.Errorf("limit %q has Size %d here and %d on other hosts", s.Name, s.Size,
				s.SizeElsewhere))
		}
	}
	return errs
}
