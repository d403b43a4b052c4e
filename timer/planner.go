package timer

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// maxSleep bounds the sleep of the scheduling goroutine, and so how late a tick can be after a
	// step of the wall clock or a suspend of the machine.
	maxSleep = 10 * time.Second
	// stallThreshold is how late the scheduling goroutine may wake up before Live returns an error.
	stallThreshold = 10 * time.Second
	// dueBatch is how many items are taken from the heap at once.
	dueBatch = 64
)

// A planner decides when timers are due. Its goroutine takes due items from the heap, asks
// schedules and blackouts, and hands the ticks to the gate. It does not know stores, limits and
// runs.
type planner struct {
	timetable *timetable
	log       *lineLog
	registry  *registry
	waits     *fullWaits
	ledger    *ledger
	gate      *gate

	wake    chan struct{} // wakes the scheduling goroutine: there is an earlier item
	wakesAt wakeTime
	skew    atomic.Int64 // added to this host's clock by tests

	// Used by the scheduling goroutine only.
	look     clockLook
	batch    [dueBatch]dueItem // a batch, because taking the mutex for every tick would cost too much
	userCode []dueItem         // the same, for timers that call user code
	arrivals []arrival         // of the batch at hand

	// mu guards the rest, and the fields of entries that are marked as the planner's.
	// docs/architecture.md has the order of mutexes.
	mu      sync.Mutex
	started bool // Run has begun; before that the heap is empty
	stopped bool // nothing is planned any more
	heap    tickHeap
	fixed   fixedDelays
	dropped int // about how many items of the heap belong to timers that were removed or replaced
}

// A dueItem is a due item of the heap, with the answers of the schedule and the blackouts.
type dueItem struct {
	item
	tick  time.Time // zero: the schedule failed and is asked again
	due   time.Time // the latest tick that came due; zero: none
	came  cameDue   // if the timer's next tick is due
	retry plan      // if the schedule is asked again
	err   error     // of that schedule, or the blackout of a tick that is tried again
}

// An arrival is a tick that has come due, or is tried again.
type arrival struct {
	e       *settings
	tick    dueTick
	later   bool      // it is tried again, and was counted when it came due
	noAlarm bool      // it does not count towards AlarmAfter: see fixedDelays.isRetry
	missed  uint64    // how many ticks before it this host missed,
	first   time.Time // the first of which was this one
	skip    Reason    // why it is not tried; "": it is
	err     error     // the blackout it falls into, or nil
}

func newPlanner(config Config, log *lineLog, g *registry, f *fullWaits, l *ledger) *planner {
	return &planner{
		timetable: &timetable{host: config.Holder, blackouts: config.Blackouts},
		log:       log, registry: g, waits: f, ledger: l,
		wake: make(chan struct{}, 1), wakesAt: wakeTime{createdAt: time.Now()}, fixed: make(fixedDelays),
	}
}

// poke wakes the scheduling goroutine, so that it looks at the heap.
func (p *planner) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop is the scheduling goroutine, of which there is one. It returns when until is closed.
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
		case <-p.wake:
		}
	}
}

// now returns the time by which ticks come due.
func (p *planner) now() time.Time { return time.Now().Add(time.Duration(p.skew.Load())) }

// runDue handles all due items and returns the time until the next one, or 0 if until is closed.
// Items may come due faster than it handles them, so it reports its progress for Live with every
// dispatch, and checks until with every batch.
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
		back := p.look.setBack(time.Now(), p.now()) // since then, or before it: wait would be too long by as much
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

// A clockLook is what the clocks showed when they were looked at last.
type clockLook struct {
	at    time.Time // monotonic
	shown time.Time // the wall clock at that time
}

// setBack notes what the clocks show, and reports whether the wall clock was set back since the
// last look.
func (l *clockLook) setBack(at, shown time.Time) bool {
	before := *l
	*l = clockLook{at, shown.Round(0)}
	return !before.at.IsZero() && steppedBack(l.at.Sub(before.at), l.shown.Sub(before.shown))
}

// dispatch asks the schedules and blackouts of a batch, plans the next ticks, and hands the due
// ones to the gate.
func (p *planner) dispatch(batch []dueItem, now time.Time) {
	p.wakesAt.set(0)
	// Schedules and blackouts may be the user's code: they run without a mutex, because they may
	// call us.
	for i := range batch {
		p.ask(&batch[i], now)
	}
	p.mu.Lock()
	for i := range batch {
		if a, ok := p.arrive(&batch[i]); ok {
			p.arrivals = append(p.arrivals, a)
		}
	}
	p.mu.Unlock()
	p.gate.arrive(p.arrivals)
	clear(p.arrivals)
	p.arrivals = p.arrivals[:0]
	clear(batch)
	p.log.flush()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// usesUserCode reports whether a timer's schedule or blackouts may be user code. That may take
// long, and other timers must not wait for it: these items are dispatched last, one by one.
func (tt *timetable) usesUserCode(s *settings) bool {
	_, ours := s.timer.Schedule.(schedule.Interval)
	if _, fixed := s.delay(); fixed {
		ours = true
	}
	return !ours || len(s.timer.Blackouts) > 0 || len(tt.blackouts) > 0
}

// takeDue takes up to dueBatch due items from the heap, or returns the time until one is due.
func (p *planner) takeDue() (batch, userCode []dueItem, now time.Time, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, wait = p.now(), maxSleep // read with the mutex held, because waiting for it takes time
	batch, userCode = p.batch[:0], p.userCode[:0]
	for len(batch)+len(userCode) < dueBatch && len(p.heap) > 0 {
		if when := time.UnixMicro(p.heap[0].when); when.After(now) {
			wait = min(when.Sub(now), maxSleep)
			break
		}
		d := dueItem{item: p.heap.pop()}
		switch {
		case d.again != nil:
			d.e.later--
		case d.e.gone():
			p.dropped = max(0, p.dropped-1)
			continue
		case !p.fixed.comesUp(d.item, &p.heap, now):
			continue
		}
		next, due := d.e.ticks.read()
		switch {
		case next != 0:
			d.tick = time.UnixMicro(next)
		case d.again == nil && d.e.askPause == 0 && len(batch)+len(userCode) > 0:
			// A tick of this timer may be among those taken. They are tried first.
			p.heap.push(d.item)
			return batch, userCode, now, wait
		case d.again == nil && d.e.askPause == 0:
			p.finish(d.e)
			continue
		case due != 0:
			d.due = time.UnixMicro(due)
		}
		if p.timetable.usesUserCode(d.e) {
			userCode = append(userCode, d)
		} else {
			batch = append(batch, d)
		}
	}
	p.userCode = userCode[:0]
	return batch, userCode, now, wait
}

// putBack puts items back into the heap that were taken but not dispatched.
func (p *planner) putBack(items []dueItem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range items {
		if items[i].again != nil {
			items[i].e.later++
		}
		p.heap.push(items[i].item)
	}
	clear(items)
}

// ask asks the schedule and the blackouts. Called without a mutex.
func (p *planner) ask(d *dueItem, now time.Time) {
	switch {
	case d.again != nil:
		d.err = p.timetable.blackoutAgain(d.e, *d.again, now)
	case d.tick.IsZero():
		d.retry, d.err = p.timetable.askAgain(d.e, d.due, now)
	default:
		d.came = p.timetable.comeDue(d.e, d.tick, time.UnixMicro(d.when), now)
	}
}

// arrive plans a timer's next tick, and returns the tick that is to be tried or skipped now, if
// there is one. Called with mu held.
func (p *planner) arrive(d *dueItem) (a arrival, ok bool) {
	s := d.e
	switch {
	case d.again != nil:
		if h := s.heir(); h != nil {
			s = h
		}
		a = arrival{e: s, tick: *d.again, later: true, err: d.err}
		if _, due := s.ticks.read(); s.gone() || due != a.tick.at {
			a.skip, a.err = a.tick.overtaken(), nil
		} else if a.err != nil {
			a.skip = ReasonBlackout
		}
		return a, true
	case s.gone():
		return a, false
	case d.tick.IsZero():
		p.setNext(s, 0, d.retry, d.err)
		return a, false
	}
	c := &d.came
	a = arrival{e: s, tick: dueTick{at: c.last.UnixMicro()}, missed: c.missed, first: c.first, err: c.blackout}
	a.noAlarm = p.fixed.isRetry(s, a.tick.at)
	p.setNext(s, a.tick.at, c.next, c.err)
	switch {
	case c.blackout != nil:
		a.skip = ReasonBlackout
	case c.late > lateGrace && c.late > s.catchUpWindow():
		a.skip = ReasonMissed
	case c.late > lateGrace:
		a.tick.missedAt = c.due.UnixMicro()
	}
	return a, true
}

// steppedBack reports whether the wall clock was set back: it advanced by less than the time that
// has passed.
func steppedBack(passed, shown time.Duration) bool { return passed-shown > time.Second }

// replan asks all schedules again after the clock was set back: otherwise no tick would come due
// until the clock reaches the planned times again.
func (p *planner) replan(now time.Time) {
	p.log.Warn("timer: the wall clock was set back; asking all schedules again")
	p.mu.Lock()
	p.heap = slices.DeleteFunc(p.heap, func(it item) bool { return it.again == nil })
	p.dropped = 0
	for i := range p.heap {
		p.heap[i].when = now.UnixMicro() // the time was computed by the clock that was ahead: try it now
	}
	after := make(map[*settings]time.Time)
	for _, s := range p.registry.registered() {
		if s.askPause == planning {
			continue // proceed is about to plan it, by the new time; planned twice, it would run early
		}
		after[s] = s.ticks.tried(now)
	}
	p.mu.Unlock()
	for s, done := range after {
		next, err := p.timetable.first(s, now, done)
		p.mu.Lock()
		p.setNext(s, 0, next, err)
		p.mu.Unlock()
	}
	p.log.flush()
}

// setStarted makes add plan timers at once.
func (p *planner) setStarted() {
	p.wakesAt.set(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
}

// begin plans the first ticks of the timers that were registered before Run.
func (p *planner) begin(entries []*settings) {
	// Ticks between New and now do not count. Schedules are asked without a mutex. The clock may be
	// set back before loop looks at it: Run first waits for the store.
	p.look.setBack(time.Now(), p.now())
	now := p.now()
	for _, s := range entries {
		next, err := p.timetable.first(s, now, time.Time{})
		next.atOnce = p.timetable.atOnce(s, now)
		p.mu.Lock()
		p.setNext(s, 0, next, err)
		p.mu.Unlock()
	}
	p.log.flush()
}

// add plans the first ticks of timers that are being registered.
func (p *planner) add(entries []*settings, firsts []plan) {
	p.mu.Lock()
	p.heap = slices.Grow(p.heap, len(entries))
	for i, s := range entries {
		p.setNext(s, 0, firsts[i], nil)
	}
	p.mu.Unlock()
	p.poke()
}

// setNext sets the next tick of a timer and, if due is not 0, the latest that came due. Called with
// mu held.
func (p *planner) setNext(s *settings, due int64, next plan, err error) {
	if s.gone() {
		return
	}
	if err != nil {
		next = plan{}
	}
	if next.atOnce.at != 0 && p.started && !p.stopped && due == 0 {
		if _, before := s.ticks.read(); before == 0 { // nothing came due before, not even this
			due = next.atOnce.at
			p.ledger.cameDueNoAlarm(&s.entry.record)
			p.push(p.now(), s, next.atOnce)
		}
	}
	s.ticks.set(due, next.tick)
	switch {
	case err != nil:
		p.scheduleFailed(s, err)
		return
	case s.askPause != 0:
		s.askPause = 0
		s.ticks.setFault("")
		p.log.later(slog.LevelInfo, "timer: the schedule works again", "timer", s.timer.Name)
	}
	s.begun = p.started
	switch {
	case !p.started || p.stopped: // begin asks all schedules when Run starts
	case !next.tick.IsZero():
		p.heap.push(item{when: next.due.UnixMicro(), e: s})
		p.fixed.planned(s, next.due.UnixMicro())
	case schedule.Ends(s.timer.Schedule):
		p.finishLater(s)
	}
}

const (
	// A schedule that failed is asked again after minAskPause, and then after pauses that double,
	// up to maxAskPause.
	minAskPause = time.Minute
	maxAskPause = time.Hour
)

// scheduleFailed plans to ask a schedule again. Called with mu held.
func (p *planner) scheduleFailed(s *settings, err error) {
	if s.askPause == 0 {
		p.log.later(slog.LevelError, "timer: its schedule failed, so the timer is not due until that works again",
			"timer", s.timer.Name, "err", err)
	}
	s.ticks.setFault(mask.Text(err.Error()))
	s.askPause = min(max(2*s.askPause, minAskPause), maxAskPause)
	p.heap.push(item{when: p.now().Add(s.askPause).UnixMicro(), e: s})
}

// push puts a tick into the heap to be tried at a later time. Called with mu held.
func (p *planner) push(when time.Time, s *settings, t dueTick) {
	s.later++
	p.heap.push(tryLater(when, s, t))
}

// tryLater plans another try of a tick after wait. It reports false if the timer was removed or
// nothing is planned any more.
func (p *planner) tryLater(wait time.Duration, s *settings, t dueTick) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = s.heir(); p.stopped || s == nil {
		return false
	}
	p.push(p.now().Add(wait), s, t)
	p.poke()
	return true
}

// postpone plans another try of a tick just after wait, if the timer's next tick is not due before
// that: a daily timer must not lose its day to a restart of the store.
func (p *planner) postpone(wait time.Duration, s *settings, t dueTick) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = s.heir(); p.stopped || s == nil {
		return false
	}
	when := p.now().Add(wait).Add(time.Millisecond)
	next, due := s.ticks.read()
	if due != t.at || next != 0 && next <= when.UnixMicro() {
		return false
	}
	t.yielded = false // this wait may be long, so the blackouts have to be asked again
	p.push(when, s, t)
	p.poke()
	return true
}

// drop removes a removed timer's ticks from the heap.
func (p *planner) drop(s *settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixed.forget(s)
	s.ticks.set(0, time.Time{})
	p.forget(s)
}

// stop empties the heap. Ticks that wait for another try are skipped.
func (p *planner) stop() {
	p.wakesAt.clear()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	for _, it := range p.heap {
		if it.again != nil {
			p.ledger.skip(it.e, it.again.at, it.again.abandoned(), nil)
		}
	}
	p.heap = nil
}
