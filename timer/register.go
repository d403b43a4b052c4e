package timer

import (
	"context"
	"errors"
	"fmt"
)

// Register adds timers, also while the scheduler runs. It adds all or, if one has a fault, none;
// the error has all faults of all timers. A timer that takes the name of a removed one whose runs
// go on continues it: these runs count towards its limits, and its counters go on. Register logs
// the limits as New does.
func (s *Scheduler) Register(timers ...Timer) error {
	entries, err := s.register(timers)
	if err == nil {
		logRegistered(s.log, entries, s.session != nil)
	}
	return err
}

func (s *Scheduler) register(timers []Timer) (entries []*settings, err error) {
	var errs []error
	entries = make([]*settings, 0, len(timers))
	firsts := make([]plan, 0, len(timers))
	names := make(map[string]bool, len(timers))
	now, g := s.planner.now(), newRegistrar(s)
	for _, t := range timers {
		if names[t.Name] && t.Name != "" {
			errs = append(errs, fmt.Errorf("timer %.60q: Name: it is given twice: every timer needs its own", t.Name))
		}
		names[t.Name] = true
		set, first, err := g.prepare(t, now)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set.entry.record.tally = s.metrics.newTally(t.Name)
		entries, firsts = append(entries, set), append(firsts, first)
	}
	if len(errs) > 0 {
		_, more := s.registry.add(nil, names)
		return nil, errors.Join(append(errs, more...)...)
	}
	return entries, g.add(entries, firsts, names)
}

// add adds timers that were prepared, and calls no user code.
func (g *registrar) add(entries []*settings, firsts []plan, names map[string]bool) error {
	g.host.registering.Lock()
	defer g.host.registering.Unlock()
	continuing, errs := g.host.registry.add(entries, names)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, s := range continuing {
		g.host.ledger.resetDeadman(&s.entry.record)
		if g.host.store != nil {
			g.host.store.views.reset(s)
		}
	}
	g.host.planner.add(entries, firsts)
	if g.host.store != nil {
		g.host.store.overrides.readAgain()
	}
	g.host.announcer.add(entries)
	return nil
}

// Remove removes a timer: nothing of it starts any more. It then waits, until ctx ends, for the
// timer's runs, whose contexts it does not end. A tick that the store grants at that moment is
// given up: hosts that still have the timer cannot run it either. A handler may remove its own
// timer: if it passes its own context, Remove does not wait for its run. Remove returns ErrNoTimer,
// or the cause of ctx if runs are left; these go on, and show in Status until they end. The name is
// free at once: see Register. A timer that comes back may run a tick of the time in which it was
// gone: see CatchUpOnce.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if ctx == nil {
		return errNilContext
	}
	set, err := newRegistrar(s).remove(name, nil)
	if err != nil {
		return err
	}
	callers := 0
	if r, ok := RunFromContext(ctx); ok && r.settings.latest() == set && !s.runner.isOver(r) {
		callers = 1
	}
	if err := s.registry.await(ctx, set, callers); err != nil {
		return fmt.Errorf("timer %q: removed, but runs go on: %w", name, err)
	}
	return nil
}
