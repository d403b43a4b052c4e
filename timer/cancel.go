package timer

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock"
)

// CancelRun cancels a run on this host, whose Run.ID it takes: the run's context ends at once (its
// cause is a *CanceledError), the run is not retried, and its outcome is OutcomeCanceled, whatever
// the handler returns. The slot is free when the handler has returned, never before. A handler that
// ignores its context goes on. A run whose context has ended already is left alone.
//
// It returns ErrNoTimer, or ErrNoRun if that run does not go on here. control.Control.CancelRun
// cancels runs on other hosts.
func (s *Scheduler) CancelRun(timer, id string, by dlock.Origin) error {
	if err := by.Validate(); err != nil {
		return fmt.Errorf("timer %q: run %q: %w", timer, id, err)
	}
	set := s.registry.named(timer)
	if set == nil {
		return fmt.Errorf("%w: %q", ErrNoTimer, timer)
	}
	r := s.runner.find(set, id)
	if r == nil {
		return fmt.Errorf("timer %q: run %q: %w", timer, id, ErrNoRun)
	}
	s.runner.cancel(r, &CanceledError{By: by})
	return nil
}

// find returns the run with that ID; nil: there is none.
func (n *runner) find(s *settings, id string) *Run {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, r := range s.entry.runs {
		if r != nil && !r.over && r.ID() == id {
			return r
		}
	}
	return nil
}

// cancel ends the context of a run, unless it has ended. Called without a mutex held.
func (n *runner) cancel(r *Run, cause *CanceledError) {
	r.ctx.lose(cause)
	if r.ctx.cause() == error(cause) {
		n.log.Info("timer: run canceled",
			"timer", r.Timer(), "slot", r.Slot(), "run", r.ID(), "by", cause.By.By, "note", cause.By.Note)
	}
}
