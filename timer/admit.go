package timer

import (
	"log/slog"
	"time"
)

// A tick that finds MaxRuns places taken waits in line before it becomes an attempt: it is not
// claimed meanwhile, so another host may run it.

// admit tries a tick whose turn has come, for which a place is reserved. It runs in a goroutine of
// its own.
func (g *gate) admit(s *settings, t dueTick) {
	why, err := g.recheck(s, t)
	if why == "" {
		why, err = g.why(s, true)
	}
	if why == "" {
		why = g.registry.enterReserved(s, s.hostLimit())
	}
	if why != "" {
		g.turnAway(s, t, why, err)
		g.log.flush()
		g.registry.giveUp(s) // last, because Run may return then
		return
	}
	g.proceed(s, t)
}

// proceed starts the run of a tick that has a place, or asks the store for it.
func (g *gate) proceed(s *settings, t dueTick) {
	if s.shared() {
		g.acquirer.submit(s, t)
		return
	}
	if full := g.limits.enter(s, false); full != nil {
		g.turnAway(s, t, ReasonLimitFull, full)
		g.log.flush()
		g.registry.leave(s)
		return
	}
	g.runner.carryOut(g.runner.startRun(s, t, nil, nil, false))
}

// tryWaiting tries a tick that waits for a run to end: one has ended here, or may have ended
// elsewhere. It runs in a goroutine of its own.
func (g *gate) tryWaiting(w *pending) {
	s, t := w.s, w.tick
	defer g.log.flush()
	if _, due := s.entry.ticks.read(); due != t.at || time.Since(t.waitsSince) >= g.waits.maxWait {
		g.ledger.skip(s, t.at, w.why, w.err)
		return
	}
	if g.store != nil && s.shared() {
		if paused := g.store.overrides.paused(s); paused != nil {
			g.ledger.skip(s, t.at, ReasonPaused, paused)
			return
		}
	}
	if g.letTriggersFirst(s, t, true) {
		return
	}
	g.ledger.triedAgain(&s.entry.record)
	why, err := g.recheck(s, t)
	if why == "" {
		why, err = g.why(s, true)
	}
	if why == "" {
		var waits bool
		if why, waits = g.enterOrWait(s, t); waits {
			return
		}
	}
	if why != "" {
		g.turnAway(s, t, why, err)
		return
	}
	g.proceed(s, t)
}

// enterOrWait takes a place for a tick, which waits in line if MaxRuns places are taken.
func (g *gate) enterOrWait(s *settings, t dueTick) (why Reason, waits bool) {
	why, waits, earlier := g.registry.enterOrWait(s, s.hostLimit(), t)
	if earlier.at != 0 {
		g.ledger.skip(s, earlier.at, ReasonMaxRuns, nil)
	}
	return why, waits
}

// recheck asks again whether a tick that has waited may start: its catch-up window may be over, or
// a blackout may have begun. It returns why it may not; "": it may.
func (g *gate) recheck(s *settings, t dueTick) (Reason, error) {
	now := time.Now()
	if t.missedAt != 0 && now.Sub(time.UnixMicro(t.missedAt)) > s.catchUpWindow() {
		return ReasonMissed, nil
	}
	blackout := g.timetable.blackoutAgain(s, t, now)
	if blackout == nil {
		return "", nil
	}
	if _, broken := blackout.(*brokenBlackout); broken {
		g.log.laterLimited(&g.blackoutFaults, slog.LevelError,
			"timer: a blackout failed: a tick that waited does not start", "timer", s.timer.Name, "err", blackout)
	} else {
		g.ledger.discount(&s.entry.record)
	}
	return ReasonBlackout, blackout
}

// tooLate skips a tick that has waited in line for MaxWait.
func (g *gate) tooLate(s *settings, t dueTick) {
	g.ledger.skip(s, t.at, ReasonMaxRuns, nil)
	g.log.flush()
}
