package timer

import (
	"log/slog"
	"time"
)

// A tick that finds MaxRuns places taken waits in line before it becomes an attempt: it is not
// claimed meanwhile, so another host may run it.

// admit tries a tick whose turn has come, for which a place is reserved. It runs in a goroutine of
// its own.
func (g *gate) admit(t tick) {
	s := t.s
	why, err := g.recheck(t)
	if why == "" {
		why, err = g.why(s, true)
	}
	if why == "" {
		why = g.registry.enterReserved(s, s.hostLimit())
	}
	if why != "" {
		g.turnAway(t, why, err)
		g.log.flush()
		g.registry.giveUp(s) // last, because Run may return then
		return
	}
	g.proceed(t)
}

// proceed starts the run of a tick that has a place, or asks the store for it.
func (g *gate) proceed(t tick) {
	s := t.s
	if s.shared() {
		g.acquirer.submit(t)
		return
	}
	if full := g.limits.enter(s, false); full != nil {
		g.turnAway(t, ReasonLimitFull, full)
		g.log.flush()
		g.registry.leave(s)
		return
	}
	g.runner.carryOut(g.runner.startRun(t, nil, nil, false))
}

// enterOrWait takes a place for a tick, which waits in line if MaxRuns places are taken.
func (g *gate) enterOrWait(t tick) (why Reason, waits bool) {
	s := t.s
	why, waits, earlier := g.registry.enterOrWait(t, s.hostLimit())
	if earlier.at != 0 {
		g.ledger.skip(s, earlier.at, ReasonMaxRuns, nil)
	}
	return why, waits
}

// recheck asks again whether a tick that has waited may start: its catch-up window may be over, or
// a blackout may have begun. It returns why it may not; "": it may.
func (g *gate) recheck(t tick) (Reason, error) {
	s := t.s
	now := time.Now()
	if t.missedAt != 0 && now.Sub(time.UnixMicro(t.missedAt)) > s.catchUpWindow() {
		return ReasonMissed, nil
	}
	blackout := g.timetable.blackoutAgain(t, now)
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
func (g *gate) tooLate(t tick) {
	g.ledger.skip(t.s, t.at, ReasonMaxRuns, nil)
	g.log.flush()
}
