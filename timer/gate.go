package timer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// The gate is what this host asks itself before it asks the store: whether a tick, or a Trigger,
// may start something here, and if not, why. What the store says is settled in settle.go.

// A gate has no mutex. Its fields but starts do not change, and starts is the scheduling
// goroutine's own.
type gate struct {
	log      *lineLog
	registry *registry
	planner  *planner // for ticks that wait until other hosts have had their turn
	acquirer *acquirer
	runner   *runner
	ledger   *ledger
	store    *storeWatch // nil: no store
	starts   []start     // of the batch at hand
}

// why says why nothing of a timer may start here; "": the store may be asked, or, if the timer
// needs none, the run may start.
func (g *gate) why(e *entry, scheduled bool) (Reason, error) {
	switch p := g.registry.current(); {
	case p == created || p == stopped:
		return ReasonNotRunning, nil
	case !g.registry.mayStart(e):
		return ReasonDraining, nil
	}
	if err := g.pausedHere(e); err != nil {
		return ReasonPaused, err
	}
	switch {
	case g.registry.held(e) >= e.hostLimit():
		return ReasonHostFull, nil
	case g.runner.rejoining(e):
		return ReasonRejoining, nil
	case !scheduled || g.store == nil:
		return "", nil
	}
	if full := g.store.views.stillFull(e); full != nil {
		return ReasonFull, full
	}
	return "", nil
}

// arrive takes in ticks that have come due, or are to be tried now.
func (g *gate) arrive(arrivals []arrival) {
	for i := range arrivals {
		g.arriveOne(&arrivals[i])
	}
	starts := slices.Clone(g.starts)
	clear(g.starts)
	g.starts = g.starts[:0]
	if len(starts) > 0 {
		go g.runner.runAll(starts)
	}
}

func (g *gate) arriveOne(a *arrival) {
	e := a.e
	record := &e.state.record
	if a.missed > 0 {
		g.ledger.missed(record, a.missed, a.first, time.UnixMicro(a.tick.at))
	}
	if !a.later {
		g.ledger.cameDue(record)
	}
	if !a.later || a.err != nil {
		g.blackedOut(e, a.err)
	}
	if a.skip != "" {
		g.ledger.skip(record, a.tick.at, a.skip, a.err)
		return
	}
	g.try(e, a.tick)
}

// try passes a tick through the gate and sends it on its way.
func (g *gate) try(e *entry, t dueTick) {
	if g.acquirer.overtake(e, t) {
		return
	}
	if why, err := g.why(e, true); why != "" {
		g.turnAway(e, t, why, err)
		return
	}
	if g.yield(e, t) {
		return
	}
	if why := g.registry.enter(e, e.hostLimit()); why != "" { // a Trigger was faster, or Remove
		g.turnAway(e, t, why, nil)
		return
	}
	if e.shared() {
		g.acquirer.submit(e, t)
		return
	}
	g.starts = append(g.starts, start{e: e, tick: t.at})
}

// turnAway skips a tick that the gate has stopped. One that finds runs which may still succeed does
// not count towards AlarmAfter.
func (g *gate) turnAway(e *entry, t dueTick, why Reason, err error) {
	switch why {
	case ReasonHostFull:
		if runs, overdue := g.runner.counts(e); runs > 0 && overdue == 0 {
			g.ledger.discount(&e.state.record)
		}
	case ReasonFull:
		if no, ok := err.(*dlock.NotAcquiredError); ok && e.mayEndInTime(no) {
			g.ledger.discount(&e.state.record)
		} else {
			g.ledger.putOff(&e.state.record)
		}
	}
	g.ledger.skip(&e.state.record, t.at, why, err)
}

// blackedOut takes in what the blackouts said about a tick. One that falls into an intended
// blackout does not count towards AlarmAfter. One that falls into a blackout that fails does, and
// that is logged once.
func (g *gate) blackedOut(e *entry, blackout error) {
	_, failed := blackout.(*brokenBlackout)
	if blackout != nil && !failed {
		g.ledger.discount(&e.state.record)
	}
	if failed && !e.blackoutFailed {
		g.log.later(slog.LevelError,
			"timer: a blackout failed: as long as it does, nothing of the timer starts by its schedule",
			"timer", e.timer.Name, "err", blackout)
	}
	e.blackoutFailed = failed
}

// pausedHere says why nothing of a timer starts that is paused and about which the store is not
// asked; nil: it is not.
func (g *gate) pausedHere(e *entry) error {
	if e.local || e.shared() {
		return nil
	}
	return g.store.overrides.paused(e)
}
