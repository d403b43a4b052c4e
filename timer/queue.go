package timer

import (
	"math"
	"slices"
	"time"
)

// A queue has the ticks and the callers of Trigger that wait for a turn: the acquirer's, while
// maxInFlight acquires are in flight, and a line's, while MaxRuns places are taken. Half of the
// turns go to the tick whose timer is due again first, so that a peak of a thousand daily timers
// costs no tick of one that is due every second. A quarter goes to the tick that has waited
// longest, and a quarter to the Trigger that has, so that timers which are due often cannot take
// all turns. acquirer.mu guards the acquirer's, and registry.mu that of a line.
type queue struct {
	byNext   tickHeap // by when the timer is due again; may have timers whose tick no longer waits
	byAge    []*entry // the same
	ticks    map[*entry]queuedTick
	triggers []*waitingTrigger
	turns    uint
}

// A queuedTick is the tick of a timer in a queue.
type queuedTick struct {
	tick
	until time.Time // in a line: when its wait ends
}

// A waitingTrigger is a caller of Trigger who waits.
type waitingTrigger struct {
	s       *settings
	ready   chan struct{} // closed when the wait is over
	hasTurn bool          // its turn has come
}

// enqueue adds a tick. No other tick of its timer may be in the queue.
func (q *queue) enqueue(w queuedTick) {
	e := w.s.entry
	if q.ticks == nil {
		q.ticks = make(map[*entry]queuedTick)
	}
	q.ticks[e] = w
	q.byNext.push(nextDue(e))
	q.byAge = append(q.byAge, e)
	if len(q.byAge) > 2*len(q.ticks)+maxInFlight || len(q.byNext) > 2*len(q.ticks)+maxInFlight {
		q.tidy()
	}
}

// tidy drops timers whose tick no longer waits: a timer that is taken from one list stays in the
// other.
func (q *queue) tidy() {
	seen := make(map[*entry]bool, len(q.ticks))
	var waiting []*entry
	for _, e := range slices.Backward(q.byAge) { // the latest place is the one that counts
		if _, waits := q.ticks[e]; waits && !seen[e] {
			seen[e] = true
			waiting = append(waiting, e)
		}
	}
	slices.Reverse(waiting)
	q.byAge, q.byNext = waiting, nil
	for _, e := range waiting {
		q.byNext.push(nextDue(e))
	}
}

// nextDue returns a timer's item in byNext.
func nextDue(e *entry) item {
	next, _ := e.ticks.read()
	if next == 0 { // never
		next = math.MaxInt64
	}
	return item{when: next, e: e}
}

// has reports whether a tick of a timer waits.
func (q *queue) has(e *entry) bool {
	_, waits := q.ticks[e]
	return waits
}

// takeOut removes the tick of a timer; the zero tick: none waits.
func (q *queue) takeOut(e *entry) tick {
	w := q.ticks[e]
	delete(q.ticks, e)
	if len(q.ticks) == 0 {
		q.byNext, q.byAge, q.ticks = nil, nil, nil
	}
	return w.tick
}

// oldest removes the tick that has waited longest; the zero tick: none waits.
func (q *queue) oldest() (next tick) {
	for len(q.byAge) > 0 && next.s == nil {
		e := q.byAge[0]
		q.byAge = q.byAge[1:]
		next = q.takeOut(e)
	}
	return next
}

// soonest removes the tick whose timer is due again first; the zero tick: none waits.
func (q *queue) soonest() (next tick) {
	for len(q.byNext) > 0 && next.s == nil {
		next = q.takeOut(q.byNext.pop().e)
	}
	return next
}

// all removes all ticks, in the order in which they came.
func (q *queue) all() (list []tick) {
	for next := q.oldest(); next.s != nil; next = q.oldest() {
		list = append(list, next)
	}
	return list
}

// serve gives the next turn to a Trigger, which it wakes, or to a tick; the zero tick: nothing
// waits.
func (q *queue) serve() (next tick, trigger bool) {
	q.turns++
	switch {
	case len(q.triggers) > 0 && (q.turns%4 == 0 || len(q.ticks) == 0):
		w := q.triggers[0]
		q.triggers = q.triggers[1:]
		w.hasTurn = true
		close(w.ready)
		return tick{s: w.s}, true
	case q.turns%4 == 2:
		return q.oldest(), false
	default:
		return q.soonest(), false
	}
}

// withdraw removes the tick of a timer that was removed or updated, and ends the wait of its
// triggers, without giving them a turn. Triggers that came since are left alone. The zero tick: no
// tick waits.
func (q *queue) withdraw(e *entry) tick {
	q.dismiss(func(s *settings) bool { return s.entry == e && !s.current() })
	return q.takeOut(e)
}

// dismiss ends the wait of triggers without giving them a turn.
func (q *queue) dismiss(whose func(*settings) bool) {
	q.triggers = slices.DeleteFunc(q.triggers, func(w *waitingTrigger) bool {
		if !whose(w.s) {
			return false
		}
		close(w.ready)
		return true
	})
}

// close removes all ticks, and ends the wait of all triggers.
func (q *queue) close() []tick {
	q.dismiss(func(*settings) bool { return true })
	return q.all()
}
