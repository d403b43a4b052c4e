package timer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// The gate holds the checks that this host makes before it calls the store. They decide whether a
// tick or a Trigger may start a run on this host, and if not, why. The acquirer (decide) acts on
// the store's answer.

// A gate has no mutex. Its fields do not change, except starts, which belongs to the scheduling
// goroutine.
type gate struct {
	log      *lineLog
	registry *registry
	limits   *limits
	waiting  *waiting
	acquirer *acquirer
	runner   *runner
	ledger   *ledger
	store    *storeWatch // nil without a store
	triggers *triggers   // nil without a store
	starts   []tick      // the runs to start in the current batch
}

// why returns the reason why no run of a timer may start on this host, or "" if one may. If the
// timer needs a slot, the store still has to grant it.
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
	// The store also checks the delay, but it does not know of runs that continued without it.
	if left := s.delayLeft(); left > 0 {
		g.waiting.moveNext(s, left)
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

// handle handles a batch of ticks that are due or are tried again.
func (g *gate) handle(arrivals []dueTick) {
	for i := range arrivals {
		g.handleOne(&arrivals[i])
	}
	starts := slices.Clone(g.starts)
	clear(g.starts)
	g.starts = g.starts[:0]
	if len(starts) > 0 {
		go g.runner.runAll(starts)
	}
}

func (g *gate) handleOne(a *dueTick) {
	s := a.s
	if a.ticks.missed > 0 {
		g.ledger.missed(s, a.ticks.missed, a.ticks.first, time.UnixMicro(a.at))
	}
	switch {
	case a.over:
		g.skip(&a.pending, a.why, a.err)
		return
	case a.on == forRun:
		if paused := g.paused(s); paused != nil {
			g.skip(&a.pending, ReasonPaused, paused)
			return
		}
		g.ledger.triedAgain(s.entry)
	case a.on != forNothing:
	case a.noAlarm:
		g.ledger.dueNoAlarm(s.entry)
	default:
		g.ledger.due(s.entry)
	}
	if a.on == forNothing || a.ticks.blackout != nil {
		g.blackedOut(s, a.ticks.blackout)
	}
	if a.skip != "" {
		g.skip(&a.pending, a.skip, a.ticks.blackout)
		return
	}
	g.try(&a.pending)
}

// try checks a tick. It passes the tick to the acquirer or the runner, makes it wait, or skips it.
func (g *gate) try(p *pending) {
	t, s := p.tick, p.s
	if p.on == forNothing && g.overtake(t) {
		return
	}
	why, err := g.why(s, true)
	switch {
	case why != "":
	case p.turn:
		why = g.registry.enterReserved(s, s.hostLimit())
	case g.letTriggersFirst(t, t.yielded || p.on == forRun) || p.on != forRun && g.yield(t):
		return
	default:
		why = g.registry.enter(s, s.hostLimit()) // fails if a Trigger has taken the place in the meantime
	}
	if why != "" {
		g.waitOrSkip(t, why, err, false)
		if p.turn {
			g.registry.giveUp(s)
		}
		return
	}
	if s.shared() {
		g.acquirer.submit(t)
		return
	}
	if why, full := g.limits.enter(s, false); full != nil {
		g.waitOrSkip(t, why, full, true)
		return
	}
	g.starts = append(g.starts, t)
}

// overtake skips an earlier tick of the timer that still waits. It reports whether this tick waits
// instead.
func (g *gate) overtake(t tick) (waits bool) {
	earlier, waits := g.waiting.overtake(t)
	if earlier != nil {
		g.ledger.skip(earlier.s, earlier.at, earlier.why, earlier.err)
	}
	return waits
}

// skip skips a tick that is due or has waited.
func (g *gate) skip(p *pending, why Reason, err error) {
	g.ledger.skip(p.s, p.at, why, err)
	if p.turn {
		g.registry.giveUp(p.s)
	}
}

// waitOrSkip makes a tick that failed a check wait, or skips it. If runs in progress may still
// succeed, the tick does not count towards AlarmAfter. placed means that the tick has a place,
// which waitOrSkip frees.
func (g *gate) waitOrSkip(t tick, why Reason, err error, placed bool) {
	s := t.s
	switch why {
	case ReasonHostFull:
		if runs, overdue := g.runner.counts(s); runs > 0 && overdue == 0 {
			g.ledger.uncount(s.entry)
		}
	case ReasonFull:
		if no, ok := err.(*dlock.NotAcquiredError); ok && s.mayEndInTime(no) {
			g.ledger.uncount(s.entry)
		} else {
			g.ledger.postpone(s.entry)
		}
	}
	if g.waiting.refuse(t, why, err, placed) {
		return
	}
	g.ledger.skip(s, t.at, why, err)
	if placed {
		g.registry.leave(s)
	}
}

// blackedOut handles what the blackouts returned for a tick. A tick in a blackout does not count
// towards AlarmAfter. If a blackout failed, the tick counts, and the failure is logged once.
func (g *gate) blackedOut(s *settings, blackout error) {
	_, failed := blackout.(*brokenBlackout)
	if blackout != nil && !failed {
		g.ledger.uncount(s.entry)
	}
	if failed && !s.entry.blackoutFailed.Load() {
		g.log.later(slog.LevelError,
			"timer: a blackout failed: until it works, the timer's schedule starts nothing",
			"timer", s.timer.Name, "err", blackout)
	}
	s.entry.blackoutFailed.Store(failed)
}

// pausedHere returns the refusal of a paused timer that does not call the store. This host has to
// enforce the pause of such a timer. It returns nil if the timer is not paused or calls the store.
func (g *gate) pausedHere(s *settings) error {
	if s.shared() {
		return nil
	}
	return g.paused(s)
}

// paused returns the refusal if the store last reported that the timer is paused, or nil if it did
// not.
func (g *gate) paused(s *settings) error {
	if s.local {
		return nil
	}
	return g.store.overrides.paused(s)
}

// yieldStep is how much longer a host waits than the host whose latest run is one tick older.
// maxYield is the longest wait.
const (
	yieldStep = 4 * time.Millisecond
	maxYield  = 100 * time.Millisecond
)

// yield makes a tick wait if this host ran one of the latest ticks, and reports whether it waits.
func (g *gate) yield(t tick) bool {
	s := t.s
	if !s.timer.LeastRecentFirst || t.yielded || !s.shared() || g.store.isOpen(s) {
		return false
	}
	since, ran := g.ledger.sinceRun(s.entry)
	if !ran {
		return false
	}
	hosts := max(1, g.store.hostsSeen())
	rank := hosts - int(min(since, uint64(hosts))) // 0 if every other host has had a turn since
	if rank <= 0 {
		return false
	}
	step := min(yieldStep, min(maxYield, s.entry.ticks.interval()/4)/time.Duration(hosts))
	t.yielded = true
	return g.waiting.later(t, time.Duration(rank)*step)
}

// letTriggersFirst makes a tick wait if a trigger waits for the places that the tick's run would
// take. It reports whether the tick waits. A tick that has yielded waits only while such a trigger
// is being started on this host.
func (g *gate) letTriggersFirst(t tick, yielded bool) bool {
	wait := g.triggers.goFirst(t.s, yielded)
	t.yielded = true
	return wait > 0 && g.waiting.later(t, wait)
}
