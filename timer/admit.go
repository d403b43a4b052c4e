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
	why, err := g.stillMay(e, t)
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

// stillMay returns why a tick that has waited may not start any more; "": it may.
func (g *gate) stillMay(e *entry, t dueTick) (Reason, error) {
	now := time.Now()
	if t.missedAt != 0 && now.Sub(time.UnixMicro(t.missedAt)) > e.catchUpWindow() {
		return ReasonMissed, nil
	}
	blackout := g.timetable.blackoutAgain(e, t, now)
	if blackout == nil {
		return "", nil
	}
	if _, broken := blackout.(*brokenBlackout); broken {
		g.log.laterFew(&g.blackoutFaults, slog.LevelError,
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
