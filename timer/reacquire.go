package timer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// After an outage, runs that went on without the store take a slot before this host starts anything
// new of their timer. Where none is free, nothing new starts until they end: so what goes on beyond
// the limit only gets less.

// rejoining reports whether a timer has to wait for its runs without a slot: the store answers, and
// they may get one. One that is past its MaxRunTime gets none, and is not waited for, just as
// nobody waits for one whose slot has run out. Called with mu held.
func (s *Scheduler) rejoining(e *entry) bool {
	if !e.shared() || s.orphan(e) == nil {
		return false
	}
	_, _, well := s.store.breakerOf(e)
	return well
}

// orphan returns a run that could use a slot, the oldest. Called with mu held.
func (s *Scheduler) orphan(e *entry) (oldest *Run) {
	for _, r := range e.state.runs {
		if r != nil && r.Degraded() && !r.over && context.Cause(r.ctx) == nil && (oldest == nil || r.started.Before(oldest.started)) {
			oldest = r
		}
	}
	return oldest
}

// handOver gives a slot that was meant for a new run to one that has none. Called with mu held.
func (s *Scheduler) handOver(e *entry, lease *dlock.Lease) bool {
	if lease == nil {
		return false
	}
	r := s.orphan(e)
	if r == nil {
		return false
	}
	s.adopt(e, r, lease)
	return true
}

// adopt makes a run that went on without the store an ordinary one. Called with mu held.
func (s *Scheduler) adopt(e *entry, r *Run, lease *dlock.Lease) {
	s.hold(e, r, lease)
	r.degraded.Store(false) // only now: Valid asks this first
	s.store.views.upAgain(e)
	s.store.views.endDegraded(e)
	s.log.laterFew(&s.adoptions, slog.LevelInfo, "timer: a run that went on without the store has a slot again", "timer", e.timer.Name, "slot", lease.Slot(), "running_for", time.Since(r.started).Round(time.Millisecond))
}

// hold ties a run to a lease. Called with mu held.
func (s *Scheduler) hold(e *entry, r *Run, lease *dlock.Lease) {
	r.lease.Store(lease)
	r.holding = true
	if r.unwatch != nil {
		r.unwatch()
	}
	r.unwatch = context.AfterFunc(lease.Context(), func() { s.lost(r.entry, r, lease) }) // of which timer it was, if e has taken its place
}

// reacquire asks for a slot, without a tick, for each run that has none. It stops when the store
// does not answer, or until is closed.
func (s *Scheduler) reacquire(until <-chan struct{}) {
	for _, e := range s.orphaned() {
		for {
			select {
			case <-until:
				return
			default:
			}
			s.lock()
			wanted := s.rejoining(e)
			s.unlock()
			if !wanted {
				break
			}
			lease, err := s.acquire(s.base, e, dueTick{})
			if lease != nil || errors.Is(err, dlock.ErrNotAcquired) {
				s.store.answer(e, dueTick{}, lease, err)
			}
			s.lock()
			given := s.handOver(e, lease)
			s.unlock()
			if lease != nil && !given { // the run has ended meanwhile
				s.release(e, lease)
			}
			if lease == nil { // none is free, or the store is gone again
				break
			}
		}
	}
}

// orphaned returns the timers that have runs without a slot, also those that were removed.
func (s *Scheduler) orphaned() []*entry {
	s.lock()
	defer s.unlock()
	var list []*entry
	if !s.store.isWell() || s.store.views.degradedRuns() == 0 {
		return nil
	}
	for _, e := range s.registry.all() {
		if s.orphan(e) != nil {
			list = append(list, e)
		}
	}
	return list
}
