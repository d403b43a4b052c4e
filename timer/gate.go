package timer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/schedule"
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
	case s.pausedHere(e):
		return ReasonPaused, e.state.view.overrides.refusal(e)
	case s.registry.held(e) >= e.hostLimit():
		return ReasonHostFull, nil
	case s.rejoining(e):
		return ReasonRejoining, nil
	case scheduled && s.stillFull(e):
		return ReasonFull, e.state.view.full.no
	}
	return "", nil
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
	case !s.shared(e):
		s.starts = append(s.starts, start{e: e, tick: t.at})
	case s.before(e).open:
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
		if e.mayEndInTime(d.view.full.no) {
			s.ledger.discount(&e.state.record)
		} else {
			s.ledger.putOff(&e.state.record)
		}
	}
	s.ledger.skip(&e.state.record, t.at, why, err)
}

// darkAgain says why a tick that is tried later than it was due may not start, or nil. Called
// without mu.
func (s *Scheduler) darkAgain(e *entry, t dueTick, now time.Time) error {
	if t.stood {
		return nil // it is only just due, and was asked about then
	}
	if t.missed != 0 {
		if dark := s.blackout(e, time.UnixMicro(t.missed)); dark != nil {
			return dark
		}
	}
	return s.blackout(e, now)
}

// A brokenBlackout panicked, or returned an end that is not later.
type brokenBlackout struct{ err error }

func (b *brokenBlackout) Error() string {
	return fmt.Sprintf("nothing starts, because it does not say until when it lasts: %v", b.err)
}

// darkness takes in what the blackouts said about a tick. One that is meant is no silence that
// anybody has to be told of; one that is broken is, and is said once. Called with mu held.
func (s *Scheduler) darkness(e *entry, dark error) {
	_, broken := dark.(*brokenBlackout)
	if dark != nil && !broken {
		s.ledger.discount(&e.state.record)
	}
	if broken && !e.blackoutFailed {
		s.log.later(slog.LevelError, "timer: a blackout failed: as long as it does, nothing of the timer starts by its schedule", "timer", e.timer.Name, "err", dark)
	}
	e.blackoutFailed = broken
}

// blackout says why nothing may start at t, or nil. Called without mu.
func (s *Scheduler) blackout(e *entry, t time.Time) error {
	for _, list := range [...][]schedule.Blackout{e.timer.Blackouts, s.config.Blackouts} {
		until, by, err := schedule.BlackedOut(list, t)
		if err != nil {
			return &brokenBlackout{err} // nothing starts that it may have been meant to prevent
		}
		if !until.IsZero() {
			return fmt.Errorf("%s, until %s at the earliest", schedule.Describe(by), until.UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}
