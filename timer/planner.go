package timer

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

const (
	// maxSleep bounds the sleep of the scheduling goroutine, so that a step of the wall clock or a
	// suspended machine delays a tick by no more than that.
	maxSleep = 10 * time.Second
	// stalled is how far the scheduling goroutine may be behind its own plan before Live says so.
	stalled = 10 * time.Second
	// dueBatch is how many items are taken from the heap at once.
	dueBatch = 64
)

// A planner knows when timers are due. Its goroutine takes what is due from the heap, asks
// schedules and blackouts, and hands the ticks on. It knows nothing of stores, limits and runs.
type planner struct {
	timetable *timetable
	log       *lineLog
	registry  *registry
	ledger    *ledger
	gate      *gate

	createdAt time.Time
	wake      chan struct{} // there is an earlier item
	wakeBy    atomic.Int64  // when the scheduling goroutine means to be awake, since createdAt; 0: it does not run
	skew      atomic.Int64  // of this host's clock; for tests

	// The scheduling goroutine's own.
	lookedAt time.Time         // when it last looked at the heap
	shown    time.Time         // what the wall clock showed then
	batch    [dueBatch]dueItem // so that many ticks a moment need not take the mutex one by one
	userCode []dueItem         // the same, of timers about which the user's code decides
	arrivals []arrival         // of the batch at hand

	// mu guards the rest, and the fields of entries that are said to be the planner's. While it is
	// held, only the mutexes of registry, ledger, log and of an entry's clock are taken.
	mu      sync.Mutex
	started bool // Run has begun; until then nothing is put into the heap
	stopped bool // it has ended
	heap    tickHeap
	dropped int // items of the heap that are of timers which were removed; roughly
}

// A dueItem is an item of the heap that is due, and what the user's code says about it.
type dueItem struct {
	item
	tick  time.Time // zero: the schedule failed, and is to be asked again
	due   time.Time // the tick that came due last; zero: none
	came  cameDue   // of a timer's next tick
	retry plan      // of a schedule that is asked again
	err   error     // of that, or the blackout of a tick that is tried later than it was due
}

// An arrival is a tick that has come due, or that was to be tried later and now is.
type arrival struct {
	e      *entry
	tick   dueTick
	later  bool      // it was counted when it came due
	missed uint64    // ticks before it that this host came to too late,
	first  time.Time // from this one on
	skip   Reason    // why it is not tried; "": it is
	err    error     // the blackout that it falls into
}

func newPlanner(config Config, log *lineLog, g *registry, l *ledger) *planner {
	return &planner{
		timetable: &timetable{host: config.Holder, blackouts: config.Blackouts, catchesUp: config.Lock != nil},
		log:       log, registry: g, ledger: l,
		createdAt: time.Now(), wake: make(chan struct{}, 1),
	}
}

// poke wakes the scheduling goroutine.
func (p *planner) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop is the one goroutine that schedules. It returns when until is closed.
func (p *planner) loop(until <-chan struct{}) {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		wait := p.runDue(until)
		p.awakeIn(wait)
		timer.Reset(wait)
		select {
		case <-until:
			return
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// awakeIn says when the scheduling goroutine will show up again, for Live.
func (p *planner) awakeIn(wait time.Duration) {
	p.wakeBy.Store(int64(time.Since(p.createdAt) + wait))
}

// lateness is how far the scheduling goroutine is behind its own plan; 0 if it does not run.
func (p *planner) lateness() time.Duration {
	planned := p.wakeBy.Load()
	if planned == 0 {
		return 0
	}
	return time.Since(p.createdAt) - time.Duration(planned)
}

// now is the time by which ticks come due.
func (p *planner) now() time.Time { return time.Now().Add(time.Duration(p.skew.Load())) }

// runDue hands on what is due and returns how long nothing else is. More may come due than it can
// hand on, so it shows that it is alive at every item, and looks for its end at every batch.
func (p *planner) runDue(until <-chan struct{}) time.Duration {
	before, shown := p.lookedAt, p.shown
	p.lookedAt, p.shown = time.Now(), p.now().Round(0)
	if !before.IsZero() && steppedBack(p.lookedAt.Sub(before), p.shown.Sub(shown)) {
		p.replan(p.shown)
	}
	for {
		select {
		case <-until:
			return 0
		default:
		}
		batch, userCode, now, wait := p.takeDue()
		if len(batch)+len(userCode) == 0 {
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
	}
}

// dispatch sends what is due on its way.
func (p *planner) dispatch(batch []dueItem, now time.Time) {
	p.awakeIn(0)
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

// usesUserCode reports whether the user's code decides about a timer. It may take long, and then
// nobody else is to wait for it: what is due at the same moment goes first, and each of these is
// handed on by itself.
func (p *planner) usesUserCode(e *entry) bool {
	_, interval := e.timer.Schedule.(schedule.Interval)
	return !interval || len(e.timer.Blackouts) > 0 || len(p.timetable.blackouts) > 0
}

// takeDue takes some items that are due from the heap, or returns how long none is.
func (p *planner) takeDue() (batch, userCode []dueItem, now time.Time, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, wait = p.now(), maxSleep // once the mutex is there, which may take a while
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
		case d.e.gone.Load():
			p.dropped--
			continue
		}
		if next, due := d.e.clock.read(); next != 0 {
			d.tick = time.UnixMicro(next)
		} else if due != 0 {
			d.due = time.UnixMicro(due)
		}
		if p.usesUserCode(d.e) {
			userCode = append(userCode, d)
		} else {
			batch = append(batch, d)
		}
	}
	p.userCode = userCode[:0]
	return batch, userCode, now, wait
}

// putBack gives the heap back what was taken and has not been sent on its way.
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

// arrive plans what comes next of a timer, and says what is to become of the tick at hand, if there
// is one. Called with mu held.
func (p *planner) arrive(d *dueItem) (a arrival, ok bool) {
	e := d.e
	switch {
	case d.again != nil:
		a = arrival{e: e, tick: *d.again, later: true, err: d.err}
		if _, due := e.clock.read(); e.gone.Load() || due != a.tick.at {
			a.skip, a.err = a.tick.overtaken(), nil
		} else if a.err != nil {
			a.skip = ReasonBlackout
		}
		return a, true
	case e.gone.Load():
		return a, false
	case d.tick.IsZero():
		p.setNext(e, 0, d.retry, d.err)
		return a, false
	}
	c := &d.came
	a = arrival{e: e, tick: dueTick{at: c.last.UnixMicro()}, missed: c.missed, first: c.first, err: c.blackout}
	p.setNext(e, a.tick.at, c.next, c.err)
	switch {
	case c.blackout != nil:
		a.skip = ReasonBlackout
	case c.late > lateGrace && c.late > e.catchUpWindow():
		a.skip = ReasonMissed
	case c.late > lateGrace:
		a.tick.missed = c.due.UnixMicro()
	}
	return a, true
}

// steppedBack reports whether the wall clock was set back: it shows less than has passed.
func steppedBack(passed, shown time.Duration) bool { return passed-shown > time.Second }

// replan asks all schedules again: what was planned by a clock that was ahead would leave the
// timers silent until the clock gets there again. A tick that this host has come to comes due no
// second time if the clock went back by less than the time between two: a nightly run must not be
// repeated because of a second. Otherwise those that lie ahead again do, and the store knows them.
func (p *planner) replan(now time.Time) {
	p.log.Warn("timer: the wall clock was set back; asking all schedules again")
	p.mu.Lock()
	p.heap = slices.DeleteFunc(p.heap, func(it item) bool { return it.again == nil })
	p.dropped = 0
	for i := range p.heap {
		p.heap[i].when = now.UnixMicro() // a tick that waits does so by the clock that was ahead: look again
	}
	after := make(map[*entry]time.Time)
	for _, e := range p.registry.registered() {
		after[e] = time.Time{}
		if _, at := e.clock.read(); at != 0 {
			if due := time.UnixMicro(at); due.Sub(now) < e.clock.interval() {
				after[e] = due
			}
		}
	}
	p.mu.Unlock()
	for e, done := range after {
		next, err := p.timetable.first(e, now, done)
		p.mu.Lock()
		p.setNext(e, 0, next, err)
		p.mu.Unlock()
	}
	p.log.flush()
}

// setStarted has timers planned at once that are registered from now on.
func (p *planner) setStarted() {
	p.awakeIn(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
}

// begin plans the first ticks of timers that were registered before Run.
func (p *planner) begin(entries []*entry) {
	// What came due between New and now was nobody's tick yet. Schedules are asked without a mutex.
	now := p.now()
	for _, e := range entries {
		next, err := p.timetable.first(e, now, time.Time{})
		next.missed = p.timetable.lastMissed(e, now)
		p.mu.Lock()
		p.setNext(e, 0, next, err)
		p.mu.Unlock()
	}
	p.log.flush()
}

// add plans the first ticks of timers that are registered now.
func (p *planner) add(entries []*entry, firsts []plan) {
	p.mu.Lock()
	p.heap = slices.Grow(p.heap, len(entries))
	for i, e := range entries {
		p.setNext(e, 0, firsts[i], nil)
	}
	p.mu.Unlock()
	p.poke()
}

// setNext takes in what comes next of a timer, and what has come due, if that is not 0. Called with
// mu held.
func (p *planner) setNext(e *entry, due int64, next plan, err error) {
	if e.gone.Load() || err != nil {
		next = plan{}
	}
	if next.missed.at != 0 && p.started && !p.stopped && due == 0 {
		if _, before := e.clock.read(); before == 0 { // also one that was the last
			due = next.missed.at
			p.ledger.cameLate(&e.state.record)
			p.push(p.now(), e, next.missed)
		}
	}
	e.clock.set(due, next.tick)
	switch {
	case e.gone.Load():
		return
	case err != nil:
		p.scheduleFailed(e, err)
		return
	case e.askPause != 0:
		e.askPause = 0
		e.clock.setFault("")
		p.log.later(slog.LevelInfo, "timer: the schedule works again", "timer", e.timer.Name)
	}
	if !next.tick.IsZero() && p.started && !p.stopped { // Run begins with asking all schedules
		p.heap.push(item{when: next.due.UnixMicro(), e: e})
	}
}

const (
	// firstAskAgain and lastAskAgain are the pauses after which a schedule that failed is asked
	// again: each is twice as long as the one before.
	firstAskAgain = time.Minute
	lastAskAgain  = time.Hour
)

// scheduleFailed has a schedule asked again later. Called with mu held.
func (p *planner) scheduleFailed(e *entry, err error) {
	if e.askPause == 0 {
		p.log.later(slog.LevelError, "timer: its schedule failed, so the timer is not due until that works again",
			"timer", e.timer.Name, "err", err)
	}
	e.clock.setFault(err.Error())
	e.askPause = min(max(2*e.askPause, firstAskAgain), lastAskAgain)
	p.heap.push(item{when: p.now().Add(e.askPause).UnixMicro(), e: e})
}

// push puts a tick into the heap that is tried later than it was due. Called with mu held.
func (p *planner) push(when time.Time, e *entry, t dueTick) {
	e.later++
	p.heap.push(tryLater(when, e, t))
}

// tryLater has a tick tried after a while. It reports false if nothing is tried any more.
func (p *planner) tryLater(wait time.Duration, e *entry, t dueTick) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || e.gone.Load() {
		return false
	}
	p.push(p.now().Add(wait), e, t)
	p.poke()
	return true
}

// postpone has a tick tried just after a while if no other comes due before: a daily timer must not
// lose its day to a restart of the store.
func (p *planner) postpone(wait time.Duration, e *entry, t dueTick) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	when := p.now().Add(wait).Add(time.Millisecond)
	next, due := e.clock.read()
	if p.stopped || e.gone.Load() || due != t.at || next != 0 && next <= when.UnixMicro() {
		return false
	}
	t.yielded = false // that was a moment; this may be long, so that blackouts have to be asked again
	p.push(when, e, t)
	p.poke()
	return true
}

// drop takes what is planned of a timer that was removed out of the heap. That of its next tick
// stays there, as looking for it would take long, until it comes up or until half of the heap is of
// that kind.
func (p *planner) drop(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.clock.set(0, time.Time{})
	if e.later > 0 {
		for _, t := range p.heap.removeAll(e) {
			e.later--
			p.ledger.skip(&e.state.record, t.at, t.abandoned(), nil)
		}
	} else if e.timer.Schedule != nil {
		p.dropped++
	}
	if p.dropped > len(p.heap)/2 {
		p.dropped = 0
		p.heap = slices.DeleteFunc(p.heap, func(it item) bool { return it.e.gone.Load() })
		p.heap.order()
	}
}

// stop ends all plans. Ticks that wait to be tried are skipped.
func (p *planner) stop() {
	p.wakeBy.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	for _, it := range p.heap {
		if it.again != nil {
			p.ledger.skip(&it.e.state.record, it.again.at, it.again.abandoned(), nil)
		}
	}
	p.heap = nil
}
