package timer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// The gate holds the checks that this host makes before it calls the store: whether a tick, or a
// Trigger, may start a run here, and if not, why. What follows from the store's answer is decided
// in settle.go.

// A gate has no mutex. Its fields do not change, apart from starts, which belongs to the scheduling
// goroutine.
type gate struct {
	log      *lineLog
	registry *registry
	limits   *limits
	waits    *fullWaits
	planner  *planner // for ticks that yield to other hosts
	acquirer *acquirer
	runner   *runner
	ledger   *ledger
	store    *storeWatch // nil: no store
	triggers *triggers   // likewise
	starts   []tick      // of the current batch
	// For ticks that have waited for a place.
	timetable      *timetable
	blackoutFaults rateLimit
}

// why returns the reason why nothing of a timer may start here; "": it may, once the store has
// granted a slot if the timer needs one.
func (g *gate) why(s *settings, scheduled bool) (Reason, error) {
	switch p := g.registry.current(); {
	case p == PhaseCreated || p == PhaseStopped:
		return ReasonNotRunning, nil
	case !g.registry.mayStart(s):
		return ReasonDraining, nil
	}
	if err := g.pausedHere(s); err != nil {
		return ReasonPaused, err
	}
	switch {
	case s.placesTaken() >= s.hostLimit():
		return ReasonHostFull, nil
	case g.runner.rejoining(s) || g.runner.limitsRejoining(s):
		return ReasonRejoining, nil
	case !scheduled:
		return "", nil
	}
	if left := g.planner.deferEarly(s); left > 0 {
		return ReasonTickEarly, &earlyError{left}
	}
	if g.store == nil {
		return "", nil
	}
	if full := g.store.views.stillFull(s); full != nil {
		return ReasonFull, full
	}
	return "", nil
}

// arrive handles a batch of ticks that have come due or are tried again.
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
	s := a.tick.s
	if a.missed > 0 {
		g.ledger.missed(s, a.missed, a.first, time.UnixMicro(a.tick.at))
	}
	switch {
	case a.later:
	case a.noAlarm:
		g.ledger.cameDueNoAlarm(&s.entry.record)
	default:
		g.ledger.cameDue(&s.entry.record)
	}
	if !a.later || a.err != nil {
		g.blackedOut(s, a.err)
	}
	if a.skip != "" {
		g.ledger.skip(s, a.tick.at, a.skip, a.err)
		return
	}
	g.try(a.tick)
}

// try checks a tick and hands it to the acquirer or the runner, or skips it.
func (g *gate) try(t tick) {
	s := t.s
	if !s.current() {
		g.turnAway(t, ReasonDraining, nil)
		return
	}
	if w := g.waits.withdraw(s.entry); w != nil {
		g.ledger.skip(s, w.at, w.why, w.err)
	}
	if g.acquirer.overtake(t) {
		return
	}
	if earlier, waited := g.registry.overtake(t); waited {
		g.ledger.skip(s, earlier.at, ReasonMaxRuns, nil)
		return
	}
	if why, err := g.why(s, true); why != "" {
		g.turnAway(t, why, err)
		return
	}
	if g.letTriggersFirst(t, t.yielded) || g.yield(t) {
		return
	}
	why, waits := g.enterOrWait(t)
	if waits {
		return
	}
	if why != "" { // MaxRuns, or a Trigger was faster, or Remove
		g.turnAway(t, why, nil)
		return
	}
	if s.shared() {
		g.acquirer.submit(t)
		return
	}
	if full := g.limits.enter(s, false); full != nil {
		g.registry.leave(s)
		g.turnAway(t, ReasonLimitFull, full)
		return
	}
	g.starts = append(g.starts, t)
}

// turnAway skips a tick that failed a check, lets it wait for a run to end, or has it tried anew if
// its timer was updated. It does not count towards AlarmAfter if runs go on that may still succeed.
func (g *gate) turnAway(t tick, why Reason, err error) {
	s := t.s
	switch why {
	case ReasonDraining:
		if !s.current() && g.planner.tryAnew(t) {
			return
		}
	case ReasonHostFull:
		if runs, overdue := g.runner.counts(s); runs > 0 && overdue == 0 {
			g.ledger.discount(&s.entry.record)
		}
	case ReasonFull:
		if no, ok := err.(*dlock.NotAcquiredError); ok && s.mayEndInTime(no) {
			g.ledger.discount(&s.entry.record)
		} else {
			g.ledger.putOff(&s.entry.record)
		}
	}
	if g.waits.enter(t, why, err) || !s.current() && s.waitsFor(why) && g.planner.tryAnew(t) {
		return
	}
	g.ledger.skip(s, t.at, why, err)
}

// blackedOut handles the answer of the blackouts about a tick. A tick in a blackout does not count
// towards AlarmAfter. If a blackout failed, the tick counts, and the failure is logged once.
func (g *gate) blackedOut(s *settings, blackout error) {
	_, failed := blackout.(*brokenBlackout)
	if blackout != nil && !failed {
		g.ledger.discount(&s.entry.record)
	}
	if failed && !s.entry.blackoutFailed.Load() {
		g.log.later(slog.LevelError,
			"timer: a blackout failed: as long as it does, nothing of the timer starts by its schedule",
			"timer", s.timer.Name, "err", blackout)
	}
	s.entry.blackoutFailed.Store(failed)
}

// pausedHere returns the refusal of a timer that is paused but does not call the store, so that
// this host has to enforce the pause; nil: there is no such pause.
func (g *gate) pausedHere(s *settings) error {
	if s.local || s.shared() {
		return nil
	}
	return g.store.overrides.paused(s)
}
