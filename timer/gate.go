package timer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// The gate is what this host asks itself before it asks the store: whether a tick, or a Trigger,
// may start something here, and if not, why. What the store says is settled in settle.go.

// gate says why nothing of a timer may start here; "": the store may be asked, or, if the timer
// needs none, the run may start. Called with mu held.
func (s *Scheduler) gate(e *entry, scheduled bool) (Reason, error) {
	switch {
	case s.registry.current() == created || s.registry.current() == stopped:
		return ReasonNotRunning, nil
	case !s.registry.starting():
		return ReasonDraining, nil
	case s.pausedHere(e) != nil:
		return ReasonPaused, s.pausedHere(e)
	case s.registry.held(e) >= e.hostLimit():
		return ReasonHostFull, nil
	case s.rejoining(e):
		return ReasonRejoining, nil
	}
	if !scheduled || s.store == nil {
		return "", nil
	}
	if full := s.store.views.stillFull(e); full != nil {
		return ReasonFull, full
	}
	return "", nil
}

// arrive takes in ticks that have come due, or are to be tried now.
func (s *Scheduler) arrive(arrivals []arrival) {
	s.lock()
	for i := range arrivals {
		s.arriveOne(&arrivals[i])
	}
	starts := slices.Clone(s.starts)
	clear(s.starts)
	s.starts = s.starts[:0]
	s.unlock()
	if len(starts) > 0 {
		go s.runAll(starts)
	}
}

// arriveOne is called with mu held.
func (s *Scheduler) arriveOne(a *arrival) {
	e := a.e
	record := &e.state.record
	if a.missed > 0 {
		s.ledger.missed(record, a.missed, a.first, time.UnixMicro(a.tick.at))
	}
	if !a.later {
		s.ledger.cameDue(record)
	}
	if !a.later || a.err != nil {
		s.blackedOut(e, a.err)
	}
	if a.skip != "" {
		s.ledger.skip(record, a.tick.at, a.skip, a.err)
		return
	}
	s.try(e, a.tick)
}

// try passes a tick through the gate and sends it on its way. Called with mu held.
func (s *Scheduler) try(e *entry, t dueTick) {
	if s.registry.starting() && e.waits.at != 0 { // the one that waits is overtaken, and gives this one its place
		s.ledger.skip(&e.state.record, e.waits.at, ReasonStoreBusy, nil)
		e.waits = t
		return
	}
	if why, err := s.gate(e, true); why != "" {
		s.turnAway(e, t, why, err)
		return
	}
	if s.standBack(e, t) {
		return
	}
	if why := s.registry.enter(e, e.hostLimit()); why != "" { // a Trigger was faster, or Remove
		s.turnAway(e, t, why, nil)
		return
	}
	switch {
	case !e.shared():
		s.starts = append(s.starts, start{e: e, tick: t.at})
	case s.store.isOpen(e):
		s.withoutStore(e, t)
	case s.attempts < maxAttempts:
		s.ask(e, t)
	default:
		s.queue.enqueue(e, t)
	}
}

// turnAway skips a tick that the gate has stopped. One that finds runs which may still succeed does
// not count towards AlarmAfter. Called with mu held.
func (s *Scheduler) turnAway(e *entry, t dueTick, why Reason, err error) {
	d := e.state
	switch why {
	case ReasonHostFull:
		if d.count((*Run).any) > 0 && d.count((*Run).overdue) == 0 {
			s.ledger.discount(&e.state.record)
		}
	case ReasonFull:
		if no, ok := err.(*dlock.NotAcquiredError); ok && e.mayEndInTime(no) {
			s.ledger.discount(&e.state.record)
		} else {
			s.ledger.putOff(&e.state.record)
		}
	}
	s.ledger.skip(&e.state.record, t.at, why, err)
}

// blackedOut takes in what the blackouts said about a tick. One that falls into an intended
// blackout does not count towards AlarmAfter. One that falls into a blackout that fails does, and
// that is logged once. Called with mu held.
func (s *Scheduler) blackedOut(e *entry, blackout error) {
	_, failed := blackout.(*brokenBlackout)
	if blackout != nil && !failed {
		s.ledger.discount(&e.state.record)
	}
	if failed && !e.blackoutFailed {
		s.log.later(slog.LevelError, "timer: a blackout failed: as long as it does, nothing of the timer starts by its schedule",
			"timer", e.timer.Name, "err", blackout)
	}
	e.blackoutFailed = failed
}

// pausedHere says why nothing of a timer starts that is paused and about which the store is not
// asked; nil: it is not.
func (s *Scheduler) pausedHere(e *entry) error {
	if e.local || e.shared() {
		return nil
	}
	return s.store.views.paused(e)
}
