package timer

import "time"

// A tick that finds MaxRuns places taken waits in line before it becomes an attempt: it is not
// claimed meanwhile, so another host may run it.

// admit tries a tick whose turn has come, for which a place is reserved. It runs in a goroutine of
// its own.
func (g *gate) admit(e *entry, t dueTick) {
	defer g.log.flush()
	if blackout := g.timetable.blackoutAgain(e, t, time.Now()); blackout != nil {
		g.registry.giveUp()
		g.ledger.discount(&e.state.record)
		g.ledger.skip(e, t.at, ReasonBlackout, blackout)
		return
	}
	why, err := g.why(e, true)
	if why == "" {
		why = g.registry.enterReserved(e, e.hostLimit())
	}
	if why != "" {
		g.registry.giveUp()
		g.turnAway(e, t, why, err)
		return
	}
	if e.shared() {
		g.acquirer.submit(e, t)
		return
	}
	if full := g.limits.enter(e, false); full != nil {
		g.registry.leave(e)
		g.turnAway(e, t, ReasonLimitFull, full)
		return
	}
	g.runner.carryOut(g.runner.startRun(e, t, nil, nil, false))
}

// tooLate skips a tick that has waited in line for MaxWait.
func (g *gate) tooLate(e *entry, t dueTick) {
	g.ledger.skip(e, t.at, ReasonMaxRuns, nil)
}
