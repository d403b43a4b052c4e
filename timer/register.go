package timer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Register adds timers, also while the scheduler runs. Either all are added or, if one has a fault,
// none; the error has all faults of all of them. A timer that takes the name of one that was
// removed, and of which runs go on, takes its place: it counts these runs for its limits, and goes
// on with its counts. Their limits are logged as New logs them.
func (s *Scheduler) Register(timers ...Timer) error {
	entries, err := s.register(timers)
	if err == nil {
		s.logRegistered(entries)
	}
	return err
}

func (s *Scheduler) register(timers []Timer) (entries []*entry, err error) {
	var errs []error
	entries = make([]*entry, 0, len(timers))
	firsts := make([]plan, 0, len(timers))
	names := make(map[string]bool, len(timers))
	now := s.now()
	for _, t := range timers {
		if names[t.Name] && t.Name != "" {
			errs = append(errs, fmt.Errorf("timer %.60q: Name: it is given twice: every timer needs its own", t.Name))
		}
		names[t.Name] = true
		if err := t.check(s.config.Lock != nil); err != nil {
			errs = append(errs, err)
			continue
		}
		e := newEntry(t)
		first, err := s.first(e, now, time.Time{})
		first.missed = s.lastMissed(e, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("timer %.60q: Schedule: %w", t.Name, err))
			continue
		}
		entries, firsts = append(entries, e), append(firsts, first)
	}
	s.lock()
	defer s.unlock()
	if s.phase == draining || s.phase == stopped {
		errs = append(errs, errors.New("timer: the scheduler is shutting down: nothing can be registered any more"))
	}
	for name := range names {
		if s.entries[name] != nil {
			errs = append(errs, fmt.Errorf("timer %.60q: Name: it is registered already: Remove that one first, or choose another name", name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s.heap = slices.Grow(s.heap, len(entries))
	for i, e := range entries {
		if old := s.parting[e.timer.Name]; old != nil {
			delete(s.parting, e.timer.Name)
			e.inherit(old)
			s.ledger.startOver(&e.state.record)
		}
		s.entries[e.timer.Name] = e
		s.take(e, firsts[i], nil)
	}
	s.poke()
	return entries, nil
}

// inherit has a timer go on where one of the same name left off of which runs go on. Called with mu
// held.
func (e *entry) inherit(old *entry) {
	e.state = old.state
	d := e.state
	d.darkBroken = false
	d.scheduleFault, d.askPause = "", 0
	d.view.full, d.view.declared = fullAnswer{}, 0
}

// Remove takes a timer out: nothing of it starts any more. It then waits, until ctx ends, for its
// runs, which go on undisturbed; a handler that removes its own timer with its own context does not
// wait for itself. It returns ErrUnknown, or the cause of ctx if runs were left; they go on then,
// too, and show in Status until they have ended. The name is free at once: see Register.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if ctx == nil {
		return errNilContext
	}
	s.lock()
	e := s.entries[name]
	if e == nil {
		s.unlock()
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	delete(s.entries, name)
	e.gone, e.next = true, 0
	e.endWaits()
	s.dropTicks(e)
	if t, waited := s.queue.takeOut(e); waited {
		s.ledger.skip(&e.state.record, t.at, ReasonDraining, nil)
		s.leave(e)
	}
	s.queue.dismiss(e)
	if e.held() > 0 {
		s.parting[name] = e
	}
	callers := 0
	if r, ok := RunFromContext(ctx); ok && r.entry == e && !r.over {
		callers = 1
	}
	if e.places <= callers {
		s.unlock()
		return nil
	}
	r := &removal{callers: callers, done: make(chan struct{})}
	s.removals[e] = r
	s.unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		s.lock()
		delete(s.removals, e)
		s.unlock()
		return fmt.Errorf("timer %q: removed, but runs go on: %w", name, context.Cause(ctx))
	}
}

// A removal waits for the runs of a timer that was removed.
type removal struct {
	callers int           // its own run, if a handler removes its own timer
	done    chan struct{} // closed when no other is left
}

// dropTicks takes what is planned of a timer that was removed out of the heap. That of its next
// tick stays there, as looking for it would take long, until it comes up or until half of the heap
// is of that kind. Called with mu held.
func (s *Scheduler) dropTicks(e *entry) {
	if e.state.later > 0 {
		for _, t := range s.heap.removeAll(e) {
			e.state.later--
			s.ledger.skip(&e.state.record, t.at, t.abandoned(), nil)
		}
	} else if e.timer.Schedule != nil {
		s.dropped++
	}
	if s.dropped > len(s.heap)/2 {
		s.dropped = 0
		s.heap = slices.DeleteFunc(s.heap, func(it item) bool { return it.e.gone })
		s.heap.order()
	}
}

// all are the timers of this host, those included that were removed and of which runs go on. Called
// with mu held.
func (s *Scheduler) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range s.entries {
			if !yield(e) {
				return
			}
		}
		for _, e := range s.parting {
			if !yield(e) {
				return
			}
		}
	}
}

// named is the timer of that name, or the one that was removed and of which runs go on; nil:
// neither. Called with mu held.
func (s *Scheduler) named(name string) *entry { return cmp.Or(s.entries[name], s.parting[name]) }
