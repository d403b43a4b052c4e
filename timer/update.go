package timer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Update replaces the timer of that name, without waiting for its runs. It returns ErrNoTimer if
// none is registered, or every fault of the new timer; the old one goes on then.
//
// Runs that go on are left alone: they keep the handler, MaxRunTime and Retry that they began with,
// and count towards the limits of the new timer. A tick, or a Trigger, for which the store is being
// asked is treated like a run that goes on. Everything that starts later has the new settings: a
// tick that waits (in line because of MaxRuns or of 64 calls to the store, for a run to end because
// of FullWait, for LeastRecentFirst, or for the end of a quarantine) is tried with them, and so is
// one whose Delay is not over. A Trigger that waits goes to the end of its line.
//
// If the new timer has the same schedule, it goes on with the ticks: none is lost, and none tried
// twice. With another schedule, it begins now: ticks of the old one that wait are skipped, as they
// are when a timer is removed (ReasonDraining; ReasonQuarantine if that is why they wait), and none
// counts as missed. Schedules of your own are told apart as for CatchUp.
//
// Update is not a start: RunOnStart of the new timer does not make it run, unless Run is just
// beginning. If the run of an earlier start still waits, it goes on waiting, and whether its tick
// is claimed depends on the old RunOnStart.
//
// The counts of Status, Explain and the metrics go on, and a pause and other overrides stay in
// force. Other hosts have the old settings until they are updated, as in a rolling deploy:
// together, hosts with different limits never exceed the largest. A run that went on without the
// store, and holds other Limits than the new timer, gets no slot when the store is back: it goes on
// without one until it ends.
func (s *Scheduler) Update(timer Timer) error {
	set, err := newRegistrar(s).replace(timer, nil)
	if err != nil {
		return err
	}
	logSettings(s.log, slog.LevelInfo, "timer: updated", set, s.session != nil)
	return nil
}

// A registrar adds, replaces and removes the timers of a Scheduler. One serves one call: the
// fault of a middleware is reported once.
type registrar struct {
	host       *Scheduler
	middleware []Middleware // of host; set to nil when its fault was reported
}

func newRegistrar(s *Scheduler) *registrar { return &registrar{s, s.config.Middleware} }

// now is by the clock that ticks are planned by.
func (g *registrar) now() time.Time { return g.host.planner.now() }

// prepare returns the entry of a timer, with its first tick, or every fault of the timer.
func (g *registrar) prepare(t Timer, now time.Time) (s *settings, first plan, err error) {
	limits, faults := g.host.limits.of(t)
	if err := errors.Join(t.check(g.host.config.Lock != nil), errors.Join(faults...),
		errors.Join(t.checkDelay(g.host.config.Lock)...)); err != nil {
		return nil, first, err
	}
	run, err := wrap(t.Run, g.middleware)
	if err != nil {
		g.middleware = nil // it would say the same of every timer
		return nil, first, fmt.Errorf("timer %.60q: %w", t.Name, err)
	}
	t.Run = run
	s = newSettings(t, g.host.config.Lock != nil)
	s.shares = newShares(limits)
	first, err = g.host.planner.timetable.first(s, now, time.Time{})
	first.atOnce = g.host.planner.timetable.atOnce(s, now)
	if err != nil {
		return nil, first, fmt.Errorf("timer %.60q: Schedule: %w", t.Name, err)
	}
	return s, first, nil
}

// replace puts a timer in the place of the one of its name. If mine is not nil, that one has to be
// mine, or an entry that has replaced mine.
func (g *registrar) replace(t Timer, mine *settings) (*settings, error) {
	s, _, err := g.prepare(t, g.host.planner.now())
	if err != nil {
		if g.host.registry.get(t.Name) == nil && t.Name != "" {
			err = errors.Join(fmt.Errorf("%w: %q", ErrNoTimer, t.Name), err)
		}
		return nil, err
	}
	return s, g.put(s, mine)
}

// put puts an entry that was prepared in the place of the timer of its name: see replace.
func (g *registrar) put(s, mine *settings) error {
	g.host.registering.Lock()
	old, err := g.host.planner.replace(mine, s)
	g.host.registering.Unlock()
	if err != nil {
		return err
	}
	g.withdraw(old)
	if g.host.store != nil {
		g.host.store.views.reset(s) // what it says of limits was about the old ones
		if old.timer.LocalOnly && !s.timer.LocalOnly {
			g.host.store.overrides.readAgain()
		}
	}
	g.host.planner.proceed(old, s)
	g.host.announcer.add([]*settings{s})
	g.host.log.flush()
	return nil
}

// remove removes a timer. If mine is not nil, the timer has to be mine, or an entry that has
// replaced mine.
func (g *registrar) remove(name string, mine *settings) (*settings, error) {
	s := g.host.registry.remove(name, mine)
	if s == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoTimer, name)
	}
	g.host.planner.drop(s)
	g.withdraw(s)
	g.host.runner.endWaits(s)
	g.host.log.flush()
	return s, nil
}

// withdraw ends the waits of a timer that was removed or replaced; a successor tries its ticks.
func (g *registrar) withdraw(s *settings) {
	g.host.acquirer.withdraw(s)
	if t, waited := g.host.registry.withdraw(s); waited && !g.host.planner.carry(s, t) {
		g.host.ledger.skip(s, t.at, ReasonDraining, nil)
	}
	if w := g.host.waits.withdraw(s); w != nil && !g.host.planner.carry(s, w.tick) {
		g.host.ledger.skip(s, w.tick.at, ReasonDraining, nil)
	}
}
