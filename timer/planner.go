package timer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// maxSleep bounds the sleep of the scheduling goroutine. It therefore also bounds how late a
	// tick can be after the wall clock steps or the machine is suspended.
	maxSleep = 10 * time.Second
	// stallThreshold is how late the scheduling goroutine may wake up before Live returns an error.
	stallThreshold = 10 * time.Second
	// dueBatch is the maximum number of items that are taken from the heap at once.
	dueBatch = 64
)

// A planner decides when timers are due. Its goroutine takes due items from the heap, calls
// schedules and blackouts, and passes the ticks to the gate. It knows nothing about stores, limits
// and runs.
type planner struct {
	schedules *schedules
	log       *lineLog
	registry  *registry
	ledger    *ledger
	gate      *gate
	waiting   *waiting
	clock     *clock
	bell      bell // rung when an earlier item is added
	wakesAt   wakeTime

	// These fields are used only by the scheduling goroutine.
	look     clockLook
	batch    [dueBatch]dueTick // in batches, because locking the mutex for every tick would cost too much
	userCode []dueTick         // like batch, for timers that call user code

	// The registry's mutex guards the remaining fields, and the fields of an entry that belong to
	// the planner.
	started bool // Run has begun; before that, the heap is empty
	stopped bool // no further ticks are planned
	heap    tickHeap
	fixed   fixedDelays
	dropped int // approximate number of stale items in the heap
}

// A dueTick is a timer whose next tick or waiting tick is due.
type dueTick struct {
	item             // the heap item; its time is 0 if the tick has waited
	pending          // the tick; until ask, the timer's next tick; at is 0 if the schedule failed and is called again
	ticks   dueTicks // the results of the schedule and the blackouts
	over    bool     // it may not wait any longer
	noAlarm bool     // it does not count towards AlarmAfter: see fixedDelays.isRetry
	skip    Reason   // why it is skipped; "" if it is tried
}

func newPlanner(config Config, log *lineLog, g *registry, l *ledger, w *waiting) *planner {
	return &planner{
		schedules: &schedules{host: config.Holder, blackouts: config.Blackouts},
		log:       log, registry: g, ledger: l, waiting: w, clock: w.clock, bell: w.bell,
		wakesAt: wakeTime{createdAt: time.Now()}, fixed: make(fixedDelays),
	}
}

// loop is the only scheduling goroutine. It returns when until is closed.
func (p *planner) loop(until <-chan struct{}) {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		wait := p.runDue(until)
		if wait <= 0 {
			return // until is closed
		}
		p.wakesAt.set(wait)
		timer.Reset(wait)
		select {
		case <-until:
			return
		case <-timer.C:
		case <-p.bell:
		}
	}
}

// now returns the time of the clock that determines when ticks are due.
func (p *planner) now() time.Time { return p.clock.now() }

// runDue handles all due items and returns the time until the next one, or 0 if until is closed.
// Items may become due faster than it handles them. Therefore it reports its progress to Live with
// every dispatch, and checks until with every batch.
func (p *planner) runDue(until <-chan struct{}) time.Duration {
	p.log.askDebug()
	if p.look.setBack(time.Now(), p.now()) {
		p.replan(p.look.shown)
	}
	for {
		select {
		case <-until:
			return 0
		default:
		}
		batch, userCode, now, wait := p.takeDue()
		back := p.look.setBack(time.Now(), p.now()) // if the clock was set back, wait would be too long by that amount
		if len(batch)+len(userCode) == 0 && !back {
			p.log.flush()
			return wait
		}
		p.dispatch(batch, now)
		for i := range userCode {
			select {
			case <-until:
				p.putBack(userCode[i:])
				return 0
			default:
			}
			p.dispatch(userCode[i:i+1], later(now, p.now()))
		}
		if back {
			p.replan(p.look.shown)
		}
	}
}

// dispatch calls the schedules and blackouts of a batch, plans the next ticks, and passes the due
// ones to the gate.
func (p *planner) dispatch(batch []dueTick, now time.Time) {
	p.wakesAt.set(0)
	// Schedules and blackouts may be user code that calls us, so they run without a mutex.
	for i := range batch {
		p.ask(&batch[i], now)
	}
	n := 0
	p.registry.mu.Lock()
	for i := range batch {
		if p.planNext(&batch[i]) {
			batch[n] = batch[i]
			n++
		}
	}
	p.registry.mu.Unlock()
	p.gate.handle(batch[:n])
	clear(batch)
	p.log.flush()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// takeDue takes up to dueBatch due items from the heap. If none is due, wait is the time until the
// next one.
func (p *planner) takeDue() (batch, userCode []dueTick, now time.Time, wait time.Duration) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	now, wait = p.now(), maxSleep // read while holding the mutex, because locking it may take time
	batch, userCode = p.batch[:0], p.userCode[:0]
	p.moveTicks()
	add := func(a dueTick) {
		if p.schedules.usesUserCode(a.s) {
			userCode = append(userCode, a)
		} else {
			batch = append(batch, a)
		}
	}
	waited, next := p.waiting.due(now.UnixMicro(), dueBatch/2) // dueBatch/2, so that the heap also has its turn
	for _, w := range waited {
		if !p.askAside(w) {
			add(dueTick{item: item{e: w.s.entry}, pending: *w})
		}
	}
	if len(waited) == dueBatch/2 {
		p.bell.ring() // there may be more
	}
	if next != 0 {
		wait = min(time.UnixMicro(next).Sub(now), maxSleep)
	}
	for len(batch)+len(userCode) < dueBatch && len(p.heap) > 0 {
		if when := time.UnixMicro(p.heap[0].when); when.After(now) {
			wait = min(when.Sub(now), wait)
			break
		}
		it := p.heap.pop()
		e, a := it.e, dueTick{item: it}
		a.s = e.settings.Load()
		switch {
		case it.when != e.planned:
			p.dropped = max(0, p.dropped-1)
			continue
		case a.s.removed() || e.failures == planning: // in the second case proceed is about to plan it
			e.planned = 0
			continue
		case !p.fixed.isDue(it, &p.heap, now):
			continue
		default:
			e.planned = 0
		}
		a.at, _ = e.ticks.read()
		switch {
		case a.at != 0:
		case e.failures == 0 && len(batch)+len(userCode) > 0:
			// The batch may contain a tick of this timer, which is tried first.
			p.plan(e, it.when)
			return batch, userCode, now, wait
		case e.failures == 0:
			p.finish(e)
			continue
		}
		add(a)
	}
	p.userCode = userCode[:0]
	return batch, userCode, now, wait
}

// putBack puts back the items that were taken but not dispatched.
func (p *planner) putBack(list []dueTick) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	for i := range list {
		switch a := &list[i]; {
		case a.on == forNothing && a.s.current():
			p.plan(a.e, a.when)
		case a.on != forNothing && !p.waiting.putBack(a.pending):
			p.ledger.skip(a.s, a.at, a.abandoned(), nil)
			p.waiting.release(&a.pending)
		}
	}
	clear(list)
}

// askAside calls the blackouts of a tick that has waited, in a separate goroutine. Blackouts may be
// slow, and this tick is tried repeatedly, so other timers would wait for them each time. It
// returns false if no blackout has to be called. The caller holds the registry's mutex.
func (p *planner) askAside(w *pending) bool {
	t := w.tick
	t.s = t.s.entry.settings.Load()
	if w.blackoutsAsked || w.yielded || !p.schedules.hasBlackouts(t.s) || !p.registry.starting() {
		return false
	}
	p.waiting.ask(w)
	p.registry.active.n++ // Run waits for this goroutine
	go func() {
		var blackout error = &brokenBlackout{errGoexit}
		defer func() { // runs even if the goroutine calls runtime.Goexit
			p.registry.mu.Lock()
			defer p.registry.mu.Unlock()
			p.waiting.asked(w, blackout)
			p.registry.active.end()
		}()
		blackout = p.schedules.blackoutAgain(t, p.now())
	}()
	return true
}

// ask calls the schedule and the blackouts. The caller holds no mutex.
func (p *planner) ask(a *dueTick, now time.Time) {
	c := &a.ticks
	switch {
	case a.blackoutsAsked:
		c.blackout = a.blackout
	case a.on != forNothing:
		t := a.tick
		t.s = a.e.settings.Load() // Update may have changed the settings
		c.blackout = p.schedules.blackoutAgain(t, now)
	case a.at == 0:
		_, due := a.e.ticks.read()
		c.next, c.err = p.schedules.askAgain(a.s, due, now)
	default:
		*c = p.schedules.due(a.s, time.UnixMicro(a.at), time.UnixMicro(a.when), now)
	}
}

// planNext plans a timer's next tick. It reports whether a tick has to be tried or skipped now. The
// caller holds the registry's mutex.
func (p *planner) planNext(a *dueTick) bool {
	c := &a.ticks
	switch {
	case a.on != forNothing:
		p.recheck(a)
		return true
	case !a.s.current():
		return false
	case a.at == 0:
		p.setNext(a.s, 0, c.next, c.err)
		return false
	}
	a.at = c.last.UnixMicro()
	a.noAlarm = p.fixed.isRetry(a.e, a.at)
	p.setNext(a.s, a.at, c.next, c.err)
	switch {
	case c.blackout != nil:
		a.skip = ReasonBlackout
	case c.late > lateGrace && c.late > a.s.catchUpWindow():
		a.skip = ReasonMissed
	case c.late > lateGrace:
		a.missedAt = c.due.UnixMicro()
	}
	return true
}

// recheck does for a tick that has waited what planNext does for a new one. Its catch-up window may
// have ended, or a blackout may have begun.
func (p *planner) recheck(a *dueTick) {
	_, due := a.e.ticks.read()
	a.over = !a.s.stillScheduled() || due != a.at || a.waitedTooLong(p.waiting.maxWait)
	if !a.s.stillScheduled() {
		a.why, a.err = a.abandoned(), nil
	}
	a.s = a.e.settings.Load()
	switch {
	case a.missedAt != 0 && p.now().Sub(time.UnixMicro(a.missedAt)) > a.s.catchUpWindow():
		a.skip, a.ticks.blackout = ReasonMissed, nil
	case a.ticks.blackout != nil:
		a.skip = ReasonBlackout
	}
}

// setStarted makes add plan timers immediately. The caller holds the registry's mutex.
func (p *planner) setStarted() {
	p.wakesAt.set(0)
	p.started = true
}

// begin plans the first ticks of the timers that were registered before Run.
func (p *planner) begin(list []*settings) {
	// Ticks between New and now do not count. Schedules are called without a mutex. Run first waits
	// for the store, so the clock may be set back before loop reads it.
	p.look.setBack(time.Now(), p.now())
	now := p.now()
	for _, s := range list {
		next, err := p.schedules.first(s, now, time.Time{})
		next.atOnce = p.schedules.atOnce(s, now)
		p.registry.mu.Lock()
		p.setNext(s, 0, next, err)
		p.registry.mu.Unlock()
	}
	p.log.flush()
}

// add plans the first ticks of timers that are being registered. The caller holds the registry's
// mutex.
func (p *planner) add(list []*settings, firsts []plan) {
	p.heap = slices.Grow(p.heap, len(list))
	for i, s := range list {
		s.entry.ticks.clear() // may be left from an earlier timer with this name
		s.entry.failures, s.entry.begun = 0, false
		s.entry.blackoutFailed.Store(false)
		p.setNext(s, 0, firsts[i], nil)
	}
	p.bell.ring()
}

// setNext sets the next tick of a timer. If due is not 0, it also sets the latest tick that was
// due. The caller holds the registry's mutex.
func (p *planner) setNext(s *settings, due int64, next plan, err error) {
	e := s.entry
	if !s.current() {
		return
	}
	if err != nil {
		next = plan{}
	}
	atOnce := next.atOnce
	if _, before := e.ticks.read(); !p.started || p.stopped || due != 0 || before != 0 {
		atOnce = tick{} // a tick was already due, perhaps this one
	}
	if atOnce.at != 0 {
		due = atOnce.at
	}
	e.ticks.set(due, next.tick)
	if atOnce.at != 0 {
		p.ledger.dueNoAlarm(e)
		if !p.waiting.delay(atOnce, 0) {
			p.ledger.skip(s, atOnce.at, ReasonDraining, nil)
		}
	}
	switch {
	case err != nil:
		p.scheduleFailed(s, err)
		return
	case e.failures != 0:
		e.failures = 0
		e.ticks.setFault("")
		p.log.later(slog.LevelInfo, "timer: the schedule works again", "timer", s.timer.Name)
	}
	e.begun = p.started
	switch {
	case !p.started || p.stopped: // begin calls all schedules when Run starts
	case !next.tick.IsZero():
		p.plan(e, next.due.UnixMicro())
		p.fixed.planned(s)
	case schedule.Ends(s.timer.Schedule):
		p.plan(e, p.now().Add(keepFinished).UnixMicro())
	default:
		p.dropNext(e)
	}
}

// plan pushes the item of a timer's next tick onto the heap. The caller holds the registry's mutex.
func (p *planner) plan(e *entry, when int64) {
	if e.planned == when {
		return // it is already in the heap
	}
	p.dropNext(e)
	e.planned = when
	p.heap.push(item{when: when, e: e})
}

const (
	// A schedule that failed is called again after minAskPause. Further pauses double, up to
	// maxAskPause.
	minAskPause = time.Minute
	maxAskPause = time.Hour
)

// scheduleFailed plans when to call a schedule again. The caller holds the registry's mutex.
func (p *planner) scheduleFailed(s *settings, err error) {
	e := s.entry
	if e.failures == 0 {
		p.log.later(slog.LevelError, "timer: the schedule failed: the timer is not due until it works again",
			"timer", s.timer.Name, "err", err)
	}
	e.ticks.setFault(mask.Text(err.Error()))
	pause := min(minAskPause<<e.failures, maxAskPause)
	if e.failures++; pause == maxAskPause {
		e.failures-- // the pause is already the longest
	}
	p.plan(e, p.now().Add(pause).UnixMicro())
}

// drop removes the next tick of a removed timer. The caller holds the registry's mutex.
func (p *planner) drop(e *entry) {
	delete(p.fixed, e)
	e.ticks.set(0, time.Time{})
	p.dropNext(e)
}

// stop empties the heap.
func (p *planner) stop() {
	p.wakesAt.clear()
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.stopped = true
	p.heap = nil
}
