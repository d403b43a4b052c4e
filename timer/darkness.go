package timer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

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
	d := e.state
	_, broken := dark.(*brokenBlackout)
	if dark != nil && !broken {
		d.silence.unknown()
	}
	if broken && !d.darkBroken {
		s.say(slog.LevelError, "timer: a blackout failed: as long as it does, nothing of the timer starts by its schedule", "timer", e.timer.Name, "err", dark)
	}
	d.darkBroken = broken
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
