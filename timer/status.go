package timer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer/control"
)

// A Status is a snapshot of a Scheduler. It is read from memory, without a call to the store.
//
// It can be marshaled as JSON. NoLimit becomes null, unknown or absent values are omitted, times
// are in UTC, durations are numbers of seconds, and errors are texts.
type Status struct {
	Phase  Phase
	Holder dlock.Holder
	Store  StoreStatus
	// Hosts is how many hosts shared the store when they were last counted, including this one. 0:
	// not known, because they have not been counted yet, or the store cannot list them.
	Hosts  int
	Timers []TimerStatus // by name
	Limits []LimitStatus // the limits that timers share, by name
	// Waiting is how many ticks and Trigger calls wait in line because Config.MaxRuns runs are in
	// progress.
	Waiting int
	// DroppedEvents is how many events of Config.Hooks were dropped because hooks could not keep
	// up.
	DroppedEvents uint64
}

// A LimitStatus is the status of a shared limit on this host.
type LimitStatus struct {
	Name          string
	Size          int // on this host; 10,000 if the limit has only a Rate
	SizeElsewhere int // on other hosts if it differs, else 0
	Runs          int // runs in progress on this host that hold it, or would hold it if the store answered
	// Rate and Per are the settings of the Limit on this host. 0: starts are not limited.
	Rate int
	Per  time.Duration
}

// Timer returns the status of one timer. ok is false if there is no timer with that name.
func (s Status) Timer(name string) (t TimerStatus, ok bool) {
	for _, t := range s.Timers {
		if t.Name == name {
			return t, true
		}
	}
	return TimerStatus{}, false
}

// StoreStatus describes the store as of this host's last call.
type StoreStatus struct {
	Name string // "" without a store
	Up   bool   // the store answered the last call; false before the first call
	// NotSetUp means that the store is not set up correctly (dlock.ErrSetup) and has granted
	// nothing since it reported that. Ticks are skipped, whatever OnStoreDown says.
	NotSetUp    bool
	BreakerOpen bool      // the store failed three times in a row: ticks do not call it, and OnStoreDown decides
	Err         string    // the problem of the store; "" if there is none
	ChangedAt   time.Time // when Up last changed
	// ServersDown lists the servers that failed three times in a row, if the store has several,
	// such as a Redis Cluster. OnStoreDown decides for the timers on them.
	ServersDown []string
}

// TimerStatus is the status of one timer on this host. Ticks equals Started plus the sum of Skipped
// plus the ticks that are being tried or are waiting.
type TimerStatus struct {
	Name     string
	Schedule string            // for people; "" if the timer is only triggered
	Next     time.Time         // the next tick; zero if none, or with schedule.After while a run is in progress
	Ticks    uint64            // ticks that were due
	Started  uint64            // ticks that started a run
	Skipped  map[Reason]uint64 // ticks that started no run, by reason
	Running  []RunInfo         // by start time
	Last     *RunResult        // the run that ended last; nil if there is none
	Fallback bool              // runs start without the store; false while paused
	// WaitingTick is the tick that waits for a run to end (see FullWait), or zero.
	WaitingTick time.Time

	LastRunAt time.Time // when the latest run on this host began; zero if there was none
	// LastSuccessAt is when a run last succeeded on any host, as far as this host knows. Zero if it
	// knows of none.
	LastSuccessAt time.Time

	// MaxConcurrency is the limit in effect: the override or, without one, the setting including
	// its default. NoLimit: none. The same holds for the next two fields.
	MaxConcurrency int
	MaxPerTick     int
	MaxPerHost     int
	Limits         []string // the limits that it shares with other timers
	// These are the settings, including defaults. NoLimit: no limit.
	MaxRunTime  time.Duration
	CatchUp     CatchUp
	RunOnStart  RunOnStartPolicy
	OnFull      FullPolicy
	OnStoreDown StoreDownPolicy
	LocalOnly   bool
	MaxAttempts int // from Retry
	AlarmAfter  int

	// EffectiveLimit is the maximum number of runs that may be in progress at the same time in the
	// fleet: MaxConcurrency, or hosts × MaxPerHost while the timer runs without the store. 0: not
	// known, because Hosts is not known.
	EffectiveLimit    int
	TicksSinceSuccess int          // ticks without a successful run on any host, as far as this host knows
	LimitElsewhere    int          // MaxConcurrency on other hosts if it differs, else 0
	LimitOverride     int          // the overridden MaxConcurrency; 0: none, or overridden to 0, which pauses the timer
	Paused            *PauseStatus // nil if the timer is not paused
	// Triggers are the triggers of a Control that wait in the store, oldest first, as this host
	// last read them.
	Triggers        []control.PendingTrigger
	ExpiredTriggers int // triggers that this host has found expired and has reported
	// StoreFault is the fault that the store found in a key of this timer (dlock.ErrFault). The
	// timer does not run until the fault is fixed. "": none.
	StoreFault string
	Removed    bool // the timer was removed, but runs of it are in progress
	// ScheduleError is the error of the schedule, which prevents further ticks. "": none. The
	// schedule is called again after a minute, then two, up to an hour.
	ScheduleError string

	due      schedule.Schedule // nil if the timer is only triggered
	settings *settings         // for Decisions
	host     *Scheduler        // nil if this is not from Scheduler.Status
}

// NextTicks returns the next n ticks, starting with Next, or fewer if no more exist. They come from
// the schedule, so a tick may still be skipped. With schedule.After only Next is known: it is the
// time at which this host checks whether the delay is over. n must be 0 to schedule.MaxNextTicks.
// Programs without this Status get the same ticks from schedule.NextTicks.
func (t TimerStatus) NextTicks(n int) ([]time.Time, error) {
	if t.Next.IsZero() || n <= 0 {
		return schedule.NextTicks(nil, t.Next, n)
	}
	if _, fixed := t.due.(schedule.FixedDelay); fixed {
		return schedule.NextTicks(schedule.At(t.Next), t.Next.Add(-time.Microsecond), n)
	}
	after, err := schedule.NextTicks(t.due, t.Next.Add(-time.Microsecond), n)
	if err != nil {
		return nil, fmt.Errorf("timer %q: %w", t.Name, err)
	}
	return after, nil
}

// BlackoutUntil returns the end of the blackout that contains an instant. It considers the
// blackouts of the timer and of Config. It returns the zero time if no blackout contains the
// instant, or if the blackouts fail. Another blackout may begin at that end.
func (t TimerStatus) BlackoutUntil(at time.Time) time.Time {
	if t.host == nil {
		return time.Time{}
	}
	for _, list := range [...][]schedule.Blackout{t.settings.timer.Blackouts, t.host.config.Blackouts} {
		if until, _, err := schedule.BlackedOut(list, at); err == nil && !until.IsZero() {
			return until
		}
	}
	return time.Time{}
}

// PauseStatus describes a pause as far as this host knows it.
type PauseStatus struct {
	driver.Cause
	Until time.Time // zero: until the MaxConcurrency of 0 is changed
}

// Status returns a snapshot. The snapshot is consistent for each timer, but not across timers.
func (s *Scheduler) Status() Status {
	st := Status{Phase: s.registry.current(), Holder: s.config.Holder, Hosts: 1,
		DroppedEvents: s.events.queue.Dropped()}
	if s.store != nil {
		st.Store, st.Hosts = s.store.status(), s.store.hostsSeen()
	}
	for _, set := range s.registry.all() {
		if t, ok := s.statusOf(set); ok {
			st.Timers = append(st.Timers, t)
		}
	}
	st.Limits = s.limits.status()
	st.Waiting, _ = s.waiting.queued()
	slices.SortFunc(st.Timers, func(a, b TimerStatus) int { return strings.Compare(a.Name, b.Name) })
	return st
}

// statusOf returns the status of a timer. ok is false if the timer has ended.
func (s *Scheduler) statusOf(set *settings) (t TimerStatus, ok bool) {
	text := "" // before the mutex is locked, because String may be user code
	if set.timer.Schedule != nil {
		text = schedule.Describe(set.timer.Schedule)
	}
	e := set.entry
	s.registry.mu.Lock()
	waiting := e.waitsForRun()
	e.mu.Lock() // so that no run of the timer begins or ends in the meantime
	s.registry.mu.Unlock()
	defer e.mu.Unlock()
	if set.isOver() {
		return t, false
	}
	t = TimerStatus{
		Name: set.timer.Name, Schedule: text, due: set.timer.Schedule, settings: set, host: s, Removed: set.removed(),
		MaxConcurrency: shown(set.limit()), MaxPerTick: shown(set.timer.MaxPerTick), MaxPerHost: shown(set.hostLimit()),
		Limits: slices.Clone(set.timer.Limits), MaxRunTime: shownTime(set.timer.MaxRunTime),
		OnStoreDown: set.timer.OnStoreDown, LocalOnly: set.timer.LocalOnly,
		CatchUp:     CatchUp{set.timer.CatchUp.Policy, shownTime(set.timer.CatchUp.Window)},
		RunOnStart:  set.timer.RunOnStart,
		OnFull:      set.timer.OnFull,
		MaxAttempts: set.timer.Retry.MaxAttempts, AlarmAfter: shown(set.timer.AlarmAfter),
	}
	t.WaitingTick = waiting
	_, fixed := set.delay()
	if next, _ := e.ticks.read(); next != 0 && !(fixed && set.placesTaken() > 0) {
		t.Next = time.UnixMicro(next)
	}
	e.record.fill(&t, s.config.Holder)
	t.EffectiveLimit = shown(set.bound(s.store))
	t.ScheduleError = e.ticks.scheduleFault()
	if s.store != nil {
		s.store.views.fill(set, &t)
		s.store.overrides.fill(set, &t)
		s.triggers.fill(set, &t)
	}
	for _, r := range e.runs {
		if r != nil {
			t.Running = append(t.Running, r.info())
		}
	}
	slices.SortFunc(t.Running, func(a, b RunInfo) int { return a.StartedAt.Compare(b.StartedAt) })
	return t, true
}

// bound returns the maximum number of runs that may be in progress at the same time in the fleet,
// or 0 if it is not known. Without the store, MaxPerHost is the only limit. w is nil without a
// store. The caller holds entry.mu.
func (s *settings) bound(w *storeWatch) int {
	limit := s.hostLimit()
	switch {
	case w == nil || !s.entry.view.fallback(s) && !s.timer.LocalOnly:
		return s.limit()
	case limit == unlimited:
		return unlimited
	default:
		return w.hostsSeen() * limit // 0 if the number of hosts is not known
	}
}

// Live returns an error if the scheduling goroutine has stalled. Only a restart of the process then
// helps. Live does not depend on the store.
func (s *Scheduler) Live() error {
	if late := s.planner.wakesAt.lateness(); late > stallThreshold {
		return fmt.Errorf("the scheduler has stalled for %v", late.Round(time.Second))
	}
	return nil
}

// Ready returns an error unless Run is running and its context has not ended. A store that is down
// does not make a host unready, because otherwise all hosts would become unready at the same time.
func (s *Scheduler) Ready() error {
	return s.registry.life.Ready()
}

// Running returns a channel that is closed when Run has begun. From then on, Trigger starts runs.
// The channel stays closed after Run has returned, even with an error of the store. Ready tells
// whether Run has ended. If Run is never called, the channel is never closed.
func (s *Scheduler) Running() <-chan struct{} { return s.registry.ran }

// Started returns an error until Run has begun and the store has been called once, whatever the
// store answered. A host also counts as started while the store is down.
func (s *Scheduler) Started() error {
	return s.registry.life.Started("store", s.store == nil || s.store.calledOnce())
}

// StoreReachable returns an error while the store does not answer or is not set up correctly. To
// avoid flapping, the error lasts from the third consecutive failure to the third consecutive
// answer. Every host acquires and releases its own lock in the background, about once per TTL, so
// it notices an outage even if nothing is due. A fault of the keys of these locks (dlock.ErrFault)
// is also an error, although timers continue.
func (s *Scheduler) StoreReachable() error {
	if s.store == nil {
		return nil
	}
	return s.store.reachable()
}

// LeasesRenewed returns an error if the renewal of a slot is late. If the renewal remains late, the
// run loses its lease.
func (s *Scheduler) LeasesRenewed() error {
	if s.session == nil {
		return nil
	}
	if late := s.session.RenewalLateness(); late > 0 {
		return fmt.Errorf("the renewal of a slot is %v late", late.Round(time.Millisecond))
	}
	return nil
}

// LimitsAgree returns an error if the MaxConcurrency of a timer, or the size of a limit, differs
// between this host and other hosts.
func (s *Scheduler) LimitsAgree() error {
	if s.store == nil {
		return nil
	}
	var errs []error
	for _, set := range s.registry.registered() {
		if declared := s.store.views.elsewhere(set); declared != 0 {
			errs = append(errs, fmt.Errorf("timer %q has MaxConcurrency %d here and %d on other hosts", set.timer.Name,
				set.timer.slots(), declared))
		}
	}
	return sorted(append(errs, s.limits.disagreements()...))
}

// Checks returns checks by name. A host with a failing check is degraded, but can serve. The name
// of a check says what holds while it passes. Its error says what is wrong and what to do. Package
// health reports each of them:
//
//   - store-reachable: StoreReachable; which of several servers do not answer; and which timers run
//     without the store, or do not run because of a fault in their keys
//   - leases-renewed: LeasesRenewed
//   - limits-agree: LimitsAgree
//   - timers-succeed: TimersSucceed
func (s *Scheduler) Checks() map[string]func() error {
	return map[string]func() error{
		"store-reachable": lifecycle.Advised(func() error { return checkStore(s.store) }, "each timer follows its "+
			"OnStoreDown policy: check the store and the network"),
		"leases-renewed": lifecycle.Advised(s.LeasesRenewed, "a run that loses its lease is stopped: check for a "+
			"slow store and for a process short of processor time"),
		"limits-agree":   lifecycle.Advised(s.LimitsAgree, "let all hosts run the same version"),
		"timers-succeed": lifecycle.Advised(s.TimersSucceed, "\"tickslot explain\" and the log of its hosts say more"),
	}
}

// checkStore is the check store-reachable. w is nil without a store.
func checkStore(w *storeWatch) error {
	if w == nil {
		return nil
	}
	var errs []error
	for _, s := range w.registry.all() {
		name := s.timer.Name
		if w.views.fallback(s) {
			errs = append(errs, fmt.Errorf("timer %q runs without the store", name))
		}
		if fault := w.views.faultOf(s); fault != "" {
			errs = append(errs, fmt.Errorf("timer %q does not run: %s", name, fault))
		}
	}
	for _, server := range w.serversDown() {
		errs = append(errs, fmt.Errorf("a server of the store (%s) does not answer: %s", w.label, server))
	}
	return errors.Join(w.reachable(), sorted(errs))
}

// Runners reports the loops of a Scheduler, which makes it a cluster.Runner: the Scheduler with its
// phase, the prober with the result of its last probe, and the heartbeat of its leases. It only
// reads memory.
func (s *Scheduler) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	phase, since := s.registry.life.Current()
	show("scheduler", "", string(phase), since, nil)
	if s.store == nil {
		return
	}
	state, store := "store_down", s.store.status()
	var err error
	switch {
	case store.ChangedAt.IsZero():
		state = "waiting" // for the first call
	case store.Up:
		state = "store_up"
	case store.Err != "":
		err = errors.New(store.Err)
	}
	show("prober", store.Name, state, store.ChangedAt, err)
	s.session.Runners(show)
}

// RegisteredTimers shows the timers of a Scheduler for a cluster.Registry, in no particular order.
// maxConcurrency and maxPerHost are the limits in force, with NoLimit for none. onStoreDown is a
// StoreDownPolicy, or "none" if the timer never calls the store. It reads memory only.
func (s *Scheduler) RegisteredTimers(
	show func(name string, maxConcurrency, maxPerHost int, onStoreDown string),
) {
	for _, set := range s.registry.registered() {
		down := "none"
		if set.shared() {
			down = set.timer.OnStoreDown.String()
		}
		show(set.timer.Name, shown(set.limit()), shown(set.hostLimit()), down)
	}
}
