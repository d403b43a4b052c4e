package timer

import (
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// waiting has the ticks that have come due and wait: of each timer at most one, the latest. What a
// tick waits for is said in its pending. When it is to be tried again, the scheduling goroutine
// takes it out, and asks the gate about it as about any tick that comes due.
type waiting struct {
	registry           *registry
	clock              *clock
	bell               bell
	maxWait            time.Duration // how long a tick may wait for a run to end
	minPause, maxPause time.Duration // pauses between two tries meanwhile

	// The registry's mutex guards the rest, and entry.pending: whether a tick may wait, and whether
	// what it waits for has come about, depends on what else that guards.
	byTime tickHeap            // by pending.until; may have timers whose tick no longer waits until then
	forRun map[*entry]*pending // those that wait for a run to end
}

func newWaiting(config Config, g *registry) *waiting {
	return &waiting{registry: g, clock: new(clock), bell: make(bell, 1), maxWait: config.MaxWait,
		minPause: config.StoreTimeout / 4, maxPause: config.TTL / 3, forRun: make(map[*entry]*pending)}
}

// later lets a tick wait for so long, while other hosts or triggers go first. It reports false if
// the tick may not wait.
func (w *waiting) later(t tick, wait time.Duration) bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	if !w.mayWait(t) {
		return false
	}
	w.put(&pending{tick: t, on: forTime, why: ReasonMissed}, w.clock.now().Add(wait))
	return true
}

// again has a tick tried at once, with the present settings of its timer. It reports false if the
// tick may not wait.
func (w *waiting) again(t tick) bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	if !w.mayWait(t) {
		return false
	}
	w.put(&pending{tick: t.anew(), on: forTime, why: ReasonMissed}, w.clock.now())
	return true
}

// refuse lets a tick wait that may not start now, if decide says so, and gives back its place if it
// has one. It reports whether the tick waits; otherwise the caller skips it, and keeps the place.
func (w *waiting) refuse(t tick, why Reason, err error, placed bool) (waits bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	now, since := w.clock.now(), t.waitsSince
	if since.IsZero() {
		since = time.Now()
	}
	r := refused{why: why, latest: w.mayWait(t), present: t.s.current(), onFull: t.s.timer.OnFull,
		waited: time.Since(since), maxWait: w.maxWait}
	_, r.fixed = t.s.delay()
	r.next, _ = t.s.entry.ticks.read()
	if no := refusal(err); why == ReasonQuarantine && no != nil {
		now = now.Add(max(no.ExpiresIn, unknownQuarantine)).Add(time.Millisecond)
		r.again = now.UnixMicro()
	}
	on := decide(r)
	if on == forNothing {
		return false
	}
	p := &pending{tick: t.anew(), on: on, why: why, err: err}
	switch {
	case on == forRun:
		p.waitsSince = since
		now = now.Add(w.pause(t.s, why, r.waited))
	case why != ReasonQuarantine:
		p.why, p.err = ReasonMissed, nil
	}
	w.put(p, now)
	if placed {
		w.giveBack(t.s)
	}
	return true
}

// mayWait reports whether a tick may wait: it is the latest of its timer, which still has the
// schedule that the tick is of, and ticks may start. Called with the registry's mutex held.
func (w *waiting) mayWait(t tick) bool {
	_, due := t.s.entry.ticks.read()
	return w.registry.starting() && t.s.stillScheduled() && due == t.at && t.s.entry.pending == nil
}

// put lets a tick wait. Called with the registry's mutex held.
func (w *waiting) put(p *pending, until time.Time) {
	e := p.s.entry
	e.pending = p
	if p.on == forRun {
		w.forRun[e] = p
	}
	w.at(p, until)
}

// at sets when a tick is tried again at the latest. Called with the registry's mutex held.
func (w *waiting) at(p *pending, until time.Time) {
	p.until = schedule.RoundUp(until).UnixMicro()
	if len(w.byTime) == 0 || p.until < w.byTime[0].when {
		w.bell.ring()
	}
	w.byTime.push(item{when: p.until, e: p.s.entry})
}

// takeOut ends the wait of a tick. Called with the registry's mutex held.
func (w *waiting) takeOut(p *pending) {
	p.s.entry.pending = nil
	delete(w.forRun, p.s.entry)
}

// overtake ends the wait of a tick because a later one of its timer has come due; nil: none waits.
func (w *waiting) overtake(t tick) *pending {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	p := t.s.entry.pending
	if p == nil || !t.s.current() {
		return nil
	}
	w.takeOut(p)
	return p
}

// due takes out up to most ticks that are to be tried now. next is when the next one is, µs; 0:
// there is none.
func (w *waiting) due(now int64, most int) (list []*pending, next int64) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	for len(w.byTime) > 0 && len(list) < most {
		if w.byTime[0].when > now {
			return list, w.byTime[0].when
		}
		it := w.byTime.pop()
		if p := it.e.pending; p != nil && p.until == it.when {
			w.takeOut(p)
			list = append(list, p)
		}
	}
	return list, 0
}

// putBack lets ticks wait on that were taken out and not tried. It returns those that may not.
func (w *waiting) putBack(p *pending) bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	if !w.mayWait(p.tick) {
		return false
	}
	w.put(p, time.UnixMicro(p.until))
	return true
}

// tryAll has all ticks tried that wait: the clock was set back, by which their times were set.
func (w *waiting) tryAll() {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	was := w.byTime
	w.byTime = nil
	for _, it := range was {
		if p := it.e.pending; p != nil && p.until == it.when {
			w.at(p, w.clock.now())
		}
	}
}

// withdraw ends the wait of a timer's tick, because the timer was removed or updated. A tick of an
// updated one that has the same schedule goes on: it is tried with the present settings. Otherwise
// it is returned, and the caller skips it; nil: none.
func (w *waiting) withdraw(e *entry) *pending {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	p := e.pending
	switch {
	case p == nil:
		return nil
	case !p.s.stillScheduled() || !w.registry.starting():
		w.takeOut(p)
		return p
	case p.on == forRun:
		w.takeOut(p)
		p.on, p.why, p.err, p.yielded = forTime, ReasonMissed, nil, false
		w.put(p, w.clock.now())
	}
	p.s = e.settings.Load()
	return nil
}

// close ends all waits, when the host drains.
func (w *waiting) close() (left []*pending) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	for _, it := range w.byTime {
		if p := it.e.pending; p != nil && p.until == it.when {
			w.takeOut(p)
			left = append(left, p)
		}
	}
	w.byTime = nil
	return left
}

// ofRun returns the tick of a timer that waits for a run to end; the zero time: none does.
func (w *waiting) ofRun(e *entry) time.Time {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	if p := e.pending; p != nil && p.on == forRun {
		return time.UnixMicro(p.at).UTC()
	}
	return time.Time{}
}
