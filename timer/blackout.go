package timer

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// blackout returns an error if nothing may start at t.
func (tt *timetable) blackout(s *settings, t time.Time) error {
	for _, list := range [...][]schedule.Blackout{s.timer.Blackouts, tt.blackouts} {
		until, by, err := schedule.BlackedOut(list, t)
		if err != nil {
			return &brokenBlackout{err} // it may have been meant to prevent this start
		}
		if !until.IsZero() {
			return fmt.Errorf("%s, until %s at the earliest", schedule.Describe(by),
				until.UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}

// blackoutAgain returns an error if a tick that is tried again may not start.
func (tt *timetable) blackoutAgain(t tick, now time.Time) error {
	if t.yielded {
		return nil // it came due moments ago, and the blackouts were asked then
	}
	if t.missedAt != 0 {
		if err := tt.blackout(t.s, time.UnixMicro(t.missedAt)); err != nil {
			return err
		}
	}
	return tt.blackout(t.s, now)
}

// A brokenBlackout panicked, or returned an end that is not later.
type brokenBlackout struct{ err error }

func (b *brokenBlackout) Error() string {
	return fmt.Sprintf("nothing starts, because it does not say until when it lasts: %v", b.err)
}
