package timer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/schedule"
)

// Register adds timers, even while the scheduler runs. It adds all of them or, if one has a fault,
// none. The error has all faults of all timers. If a timer takes the name of a removed timer whose
// runs are in progress, it continues that timer: the runs count towards its limits, and its
// counters continue. Register logs the limits as New does. From the eleventh call of Register and
// Update within a minute on, it logs them at Debug.
func (s *Scheduler) Register(timers ...Timer) error {
	list, err := s.register(timers)
	if err == nil {
		logRegistered(s.log, s.log.limited(&s.changes, slog.LevelInfo), list, s.session != nil)
	}
	return err
}

func (s *Scheduler) register(timers []Timer) (list []*settings, err error) {
	for {
		began := s.planner.now()
		if list, err = s.tryRegister(timers, began); err != errSetBack { // not errors.Is: it may be a user's error
			return list, err
		}
	}
}

// errSetBack is returned if the clock was set back while schedules were called for their first
// ticks.
var errSetBack = errors.New("the clock was set back")

func (s *Scheduler) tryRegister(timers []Timer, now time.Time) (list []*settings, err error) {
	var errs []error
	list = make([]*settings, 0, len(timers))
	firsts := make([]plan, 0, len(timers))
	names := make(map[string]bool, len(timers))
	g := newTimerChange(s)
	for _, t := range timers {
		if names[t.Name] && t.Name != "" {
			errs = append(errs, fmt.Errorf("timer %.60q: Name: two timers have it: each needs its own", t.Name))
		}
		names[t.Name] = true
		set, first, err := g.prepare(t, now)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set.entry = newEntry(t)
		set.entry.record.tally = s.metrics.newTally(t.Name)
		list, firsts = append(list, set), append(firsts, first)
	}
	if len(errs) > 0 {
		s.registry.mu.Lock()
		_, more := s.registry.add(nil, names)
		s.registry.mu.Unlock()
		return nil, errors.Join(append(errs, more...)...)
	}
	return list, g.add(list, firsts, names, now)
}

// Update changes the settings of the timer with that name, without waiting for its runs. It returns
// ErrNoTimer if there is no such timer. If the settings have faults, it returns all of them and the
// timer keeps its old settings. A run keeps the settings with which it began, and counts towards
// the new limits. The same holds for a tick or Trigger whose call to the store is in progress.
// Ticks and triggers that wait or come later are tried with the new settings. If the schedule is
// the same, no tick is lost or tried twice. A new schedule begins now: none of its ticks counts as
// missed, and waiting ticks of the old schedule are skipped (ReasonDraining or ReasonQuarantine).
// RunOnStart does not apply. Counts, pauses and other overrides remain. Hosts with different
// limits, as in a rolling deployment, together never exceed the largest limit.
func (s *Scheduler) Update(timer Timer) error {
	g := newTimerChange(s)
	set, _, err := g.prepare(timer, s.planner.now())
	switch {
	case err == nil:
		err = g.update(set)
	case s.registry.get(timer.Name) == nil && timer.Name != "":
		err = errors.Join(fmt.Errorf("%w: %q", ErrNoTimer, timer.Name), err)
	}
	if err != nil {
		return err
	}
	logSettings(s.log, s.log.limited(&s.changes, slog.LevelInfo), "timer: updated", set, s.session != nil)
	return nil
}

// Remove removes a timer, so that no run of it starts any more. It then waits for the timer's runs
// until ctx ends. It does not cancel their contexts. If the store grants a tick at that moment,
// this host gives the tick up, and hosts that still have the timer cannot run it either. A handler
// may remove its own timer. If it passes its own context, Remove does not wait for that run. Remove
// returns ErrNoTimer, or the cause of ctx if runs are left. These runs continue, and Status shows
// them until they end. The name is free immediately: see Register. If a timer is registered again,
// it may run a tick that was due while it was removed: see CatchUpOnce.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if ctx == nil {
		return errNilContext
	}
	set, err := newTimerChange(s).remove(name)
	if err != nil {
		return err
	}
	callers := int32(0)
	if r, ok := RunFromContext(ctx); ok && r.settings.registration == set.registration && !s.runner.isOver(r) {
		callers = 1
	}
	if err := s.registry.await(ctx, set.registration, callers); err != nil {
		return fmt.Errorf("timer %q: removed, but its runs continue: %w", name, err)
	}
	return nil
}

// A timerChange adds, updates and removes the timers of a Scheduler. Each value serves one call, so
// that a fault of the middleware is reported once.
type timerChange struct {
	host       *Scheduler
	middleware []Middleware // the middleware of host; nil once its fault was reported
}

func newTimerChange(s *Scheduler) *timerChange { return &timerChange{s, s.config.Middleware} }

// prepare returns the settings of a timer and its first tick, or every fault of the timer.
func (t *timerChange) prepare(timer Timer, now time.Time) (s *settings, first plan, err error) {
	limits, faults := t.host.limits.of(timer)
	if err := errors.Join(timer.check(t.host.config.Store != nil), errors.Join(faults...),
		timer.checkSlots(t.host.config.Store),
		errors.Join(timer.checkDelay(t.host.config.Store)...)); err != nil {
		return nil, first, err
	}
	run, err := guard.Wrap(timer.Run, t.middleware)
	if err != nil {
		t.middleware = nil // its fault is the same for every timer
		return nil, first, fmt.Errorf("timer %.60q: %w", timer.Name, err)
	}
	timer.Run = run
	s = newSettings(timer, t.host.config.Store != nil)
	s.shares = newShares(limits)
	first, err = t.host.planner.schedules.first(s, now, time.Time{})
	first.atOnce = t.host.planner.schedules.atOnce(s, now)
	if err != nil {
		return nil, first, fmt.Errorf("timer %.60q: Schedule: %w", timer.Name, err)
	}
	return s, first, nil
}

// add adds prepared timers and calls no user code. It returns errSetBack if the clock is behind at,
// the time at which they were prepared.
func (t *timerChange) add(list []*settings, firsts []plan, names map[string]bool, at time.Time) error {
	t.host.registry.mu.Lock()
	if t.host.planner.now().Before(at) {
		t.host.registry.mu.Unlock()
		return errSetBack // if the clock is set back later, replan notices it
	}
	continuing, errs := t.host.registry.add(list, names)
	if len(errs) == 0 {
		for _, s := range continuing {
			t.host.ledger.resetDeadman(s.entry)
			if t.host.store != nil {
				t.host.store.views.reset(s)
			}
		}
		t.host.planner.add(list, firsts)
	}
	begun := t.host.registry.starting() // if not, Run announces the timers
	t.host.registry.mu.Unlock()
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if t.host.store != nil {
		t.host.store.overrides.readAgain()
	}
	if begun {
		t.host.announcer.add(list)
	}
	return nil
}

// update gives a timer its prepared settings and plans its next tick.
func (t *timerChange) update(s *settings) error {
	t.host.registry.mu.Lock()
	old, interval, err := t.host.planner.update(s)
	if err == nil {
		t.withdraw(s.entry)
	}
	t.host.registry.mu.Unlock()
	if err != nil {
		return err
	}
	if t.host.store != nil {
		t.host.store.views.reset(s) // the view describes the old limits
		if old.timer.LocalOnly && !s.timer.LocalOnly {
			t.host.store.overrides.readAgain()
		}
	}
	t.host.planner.proceed(old, s, interval)
	t.host.announcer.add([]*settings{s})
	t.host.log.flush()
	return nil
}

func (t *timerChange) remove(name string) (*settings, error) {
	t.host.registry.mu.Lock()
	s := t.host.registry.remove(name)
	if s != nil {
		t.host.planner.drop(s.entry)
		t.withdraw(s.entry)
	}
	t.host.registry.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoTimer, name)
	}
	t.host.runner.endWaits(s)
	t.host.log.flush()
	return s, nil
}

// withdraw ends the waits of a timer that was removed or updated. An updated timer keeps its tick,
// unless the tick belongs to another schedule. The caller holds the registry's mutex.
func (t *timerChange) withdraw(e *entry) {
	if p := t.host.waiting.withdraw(e); p != nil {
		t.host.ledger.skip(p.s, p.at, p.abandoned(), nil)
		t.host.waiting.release(p)
	}
}

// maxLines is the maximum number of timers for which one registration logs a line each. If there
// are more, timers with the same limits share a line at Info, and each has its own line at Debug.
const maxLines = 20

// logRegistered logs the limits of new timers, including defaults. The caller holds no mutex.
func logRegistered(log *lineLog, level slog.Level, list []*settings, hasStore bool) {
	list = slices.SortedFunc(slices.Values(list), func(a, b *settings) int {
		return strings.Compare(a.timer.Name,
			b.timer.Name)
	})
	if len(list) > maxLines {
		logTogether(log, level, list, hasStore)
		level = slog.LevelDebug
	}
	if !log.Enabled(context.Background(), level) {
		return
	}
	for _, s := range list {
		logSettings(log, level, "timer: registered", s, hasStore)
	}
}

// logSettings logs the limits of one timer.
func logSettings(log *lineLog, level slog.Level, text string, s *settings, hasStore bool) {
	due := "none"
	if s.timer.Schedule != nil {
		due = schedule.Describe(s.timer.Schedule)
	}
	log.Log(context.Background(), level, text,
		append([]any{"timer", s.timer.Name, "schedule", due}, resolvedOf(s.timer, hasStore).args()...)...)
}

// logTogether logs how many timers have the same limits, the most frequent limits first.
func logTogether(log *lineLog, level slog.Level, list []*settings, hasStore bool) {
	type together struct {
		resolved
		first string
		n     int
	}
	var groups []together
	found := make(map[resolved]int)
	for _, s := range list {
		l := resolvedOf(s.timer, hasStore)
		i, ok := found[l]
		if !ok {
			i = len(groups)
			found[l] = i
			groups = append(groups, together{resolved: l, first: s.timer.Name})
		}
		groups[i].n++
	}
	slices.SortStableFunc(groups, func(a, b together) int { return cmp.Compare(b.n, a.n) })
	for _, g := range groups[:min(len(groups), maxLines)] {
		log.Log(context.Background(), level, "timer: registered",
			append([]any{"timers", g.n, "first", g.first}, g.args()...)...)
	}
	if left := len(groups) - maxLines; left > 0 {
		log.Log(context.Background(), level, "timer: registered more, which Status shows",
			"different_limits", left)
	}
}

// resolved has the settings of a timer that limit its runs.
type resolved struct {
	concurrency, perTick, perHost int
	runTime                       time.Duration
	catchUp                       CatchUpPolicy
	shared                        bool
	storeDown                     StoreDownPolicy // if the timer is shared
	limits                        string          // the limits that it shares with other timers
}

func resolvedOf(t Timer, hasStore bool) resolved {
	r := resolved{concurrency: t.MaxConcurrency, perTick: t.MaxPerTick, perHost: t.MaxPerHost, runTime: t.MaxRunTime,
		catchUp: t.CatchUp.Policy, limits: strings.Join(t.Limits, ", ")}
	if r.shared = hasStore && !t.LocalOnly; r.shared {
		r.storeDown = t.OnStoreDown
	}
	return r
}

func (r resolved) args() []any {
	args := []any{"max_concurrency", limitText(r.concurrency), "max_per_tick", limitText(r.perTick), "max_per_host",
		limitText(r.perHost), "max_run_time", timeText(r.runTime)}
	if r.shared {
		args = append(args, "on_store_down", r.storeDown.String())
	} else {
		args = append(args, "shared", false)
	}
	if r.limits != "" {
		args = append(args, "limits", r.limits)
	}
	return append(args, "catch_up", r.catchUp.String())
}

func limitText(limit int) string {
	if limit == unlimited {
		return "none"
	}
	return strconv.Itoa(limit)
}

func timeText(limit time.Duration) string {
	if limit == math.MaxInt64 {
		return "none"
	}
	return limit.String()
}
