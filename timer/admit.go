package timer

import (
	"log/slog"
	"time"
)

// A tick that finds MaxRuns places taken waits in line before it becomes an attempt: it is not
// claimed meanwhile, so another host may run it.

// admit tries a tick whose turn has come, for which a place is reserved. It runs in a goroutine of
// its own.
func (g *gate) admit(e *entry, t dueTick) {
	why, err := g.recheck(e, t)
	if why == "" {
		why, err = g.why(e, true)
	}
	if why == "" {
		why = g.registry.enterReserved(e, e.hostLimit())
	}
	if why != "" {
		g.turnAway(e, t, why, err)
		g.log.flush()
		g.registry.giveUp(e) // last, because Run may return then
		return
	}
	g.proceed(e, t)
}

// proceed starts the run of a tick that has a place, or asks the store for it.
func (g *gate) proceed(e *entry, t dueTick) {
	if e.shared() {
		g.acquirer.submit(e, t)
		return
	}
	if full := g.limits.enter(e, false); full != nil {
		g.turnAway(e, t, ReasonLimitFull, full)
		g.log.flush()
		g.registry.leave(e)
		return
	}
	g.runner.carryOut(g.runner.startRun(e, t, nil, nil, false))
}

// tryWaiting tries a tick that waits for a run to end: one has ended here, or may have ended
// elsewhere. It runs in a goroutine of its own.
func (g *gate) tryWaiting(w *fullWait) {
	e, t := w.e, w.tick
	defer g.log.flush()
	if _, due := e.ticks.read(); due != t.at || time.Since(t.waitsSince) >= g.waits.maxWait {
		g.ledger.skip(e, t.at, w.why, w.err)
		return
	}
	if g.store != nil && e.shared() {
		if paused := g.store.overrides.paused(e); paused != nil {
			g.ledger.skip(e, t.at, ReasonPaused, paused)
			return
		}
	}
	if g.letTriggersFirst(e, t, true) {
		return
	}
	g.ledger.triedAgain(&e.state.record)
	why, err := g.recheck(e, t)
	if why == "" {
		why, err = g.why(e, true)
	}
	if why == "" {
		var waits bool
		if why, waits = g.enterOrWait(e, t); waits {
			return
		}
	}
	if why != "" {
		g.turnAway(e, t, why, err)
		return
	}
	g.proceed(e, t)
}

// enterOrWait takes a place for a tick, which waits in line if MaxRuns places are taken.
func (g *gate) enterOrWait(e *entry, t dueTick) (why Reason, waits bool) {
	why, waits, earlier := g.registry.enterOrWait(e, e.hostLimit(), t)
	if earlier.at != 0 {
		g.ledger.skip(e, earlier.at, ReasonMaxRuns, nil)
	}
	return why, waits
}

// recheck asks again whether a tick that has waited may start: its catch-up window may be over, or
// a blackout may have begun. It returns why it may not; "": it may.
func (g *gate) recheck(e *entry, t dueTick) (Reason, error) {
	now := time.Now()
	if t.missedAt != 0 && now.Sub(time.UnixMicro(t.missedAt)) > e.catchUpWindow() {
		return ReasonMissed, nil
	}
	blackout := g.timetable.blackoutAgain(e, t, now)
	if blackout == nil {
		return "", nil
	}
	if _, broken := blackout.(*brokenBlackout); broken {
		g.log.laterLimited(&g.blackoutFaults, slog.LevelError,
			"timer: a blackout failed: a tick that waited does not start", "timer", e.timer.Name, "err", blackout)
	} else {
		g.ledger.discount(&e.state.record)
	}
	return ReasonBlackout, blackout
}

// tooLate skips a tick that has waited in line for MaxWait.
func (g *gate) tooLate(e *entry, t dueTick) {
	g.ledger.skip(e, t.at, ReasonMaxRuns, nil)
	g.log.flush()
}
