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
	byNext   tickHeap    // by when the timer is due again; may have timers whose tick no longer waits
	byAge    []*settings // the same
	ticks    map[*settings]waitingTick
	triggers []*waitingTrigger
	turns    uint
}

// A waitingTick is the tick of a timer that waits.
type waitingTick struct {
	dueTick
	until time.Time // in a line: when its wait ends
}

// A waitingTrigger is a caller of Trigger who waits.
type waitingTrigger struct {
	e       *settings
	ready   chan struct{} // closed when the wait is over
	hasTurn bool          // its turn has come
}

// enqueue adds a tick. No other tick of its timer may be in the queue.
func (q *queue) enqueue(s *settings, t dueTick) {
	if q.ticks == nil {
		q.ticks = make(map[*settings]waitingTick)
	}
	q.ticks[s] = waitingTick{dueTick: t}
	q.byNext.push(nextDue(s))
	q.byAge = append(q.byAge, s)
	if len(q.byAge) > 2*len(q.ticks)+maxInFlight || len(q.byNext) > 2*len(q.ticks)+maxInFlight {
		q.tidy()
	}
}

// tidy drops timers whose tick no longer waits: a timer that is taken from one list stays in the
// other.
func (q *queue) tidy() {
	seen := make(map[*settings]bool, len(q.ticks))
	var waiting []*settings
	for _, s := range slices.Backward(q.byAge) { // the latest place is the one that counts
		if _, waits := q.ticks[s]; waits && !seen[s] {
			seen[s] = true
			waiting = append(waiting, s)
		}
	}
	slices.Reverse(waiting)
	q.byAge, q.byNext = waiting, nil
	for _, s := range waiting {
		q.byNext.push(nextDue(s))
	}
}

// nextDue returns a timer's item in byNext.
func nextDue(s *settings) item {
	next, _ := s.ticks.read()
	if next == 0 { // never
		next = math.MaxInt64
	}
	return item{when: next, e: s}
}

// has reports whether a tick of a timer waits.
func (q *queue) has(s *settings) bool {
	_, waits := q.ticks[s]
	return waits
}

// takeOut removes the tick of a timer, if one waits.
func (q *queue) takeOut(s *settings) (t dueTick, waited bool) {
	w, waited := q.ticks[s]
	if !waited {
		return t, false
	}
	delete(q.ticks, s)
	if len(q.ticks) == 0 {
		q.byNext, q.byAge, q.ticks = nil, nil, nil
	}
	return w.dueTick, true
}

// oldest removes the tick that has waited longest; nil: none waits.
func (q *queue) oldest() (s *settings, t dueTick) {
	for len(q.byAge) > 0 {
		s, q.byAge = q.byAge[0], q.byAge[1:]
		if t, waited := q.takeOut(s); waited {
			return s, t
		}
	}
	return nil, dueTick{}
}

// soonest removes the tick whose timer is due again first; nil: none waits.
func (q *queue) soonest() (s *settings, t dueTick) {
	for len(q.byNext) > 0 {
		s = q.byNext.pop().e
		if t, waited := q.takeOut(s); waited {
			return s, t
		}
	}
	return nil, dueTick{}
}

// serve gives the next turn to a Trigger, which it wakes, or to a tick; nil: nothing waits.
func (q *queue) serve() (s *settings, t dueTick, trigger bool) {
	q.turns++
	if len(q.triggers) > 0 && (q.turns%4 == 0 || len(q.ticks) == 0) {
		w := q.triggers[0]
		q.triggers = q.triggers[1:]
		w.hasTurn = true
		close(w.ready)
		return w.e, dueTick{}, true
	}
	if q.turns%4 == 2 {
		s, t = q.oldest()
	} else {
		s, t = q.soonest()
	}
	return s, t, false
}

// dismiss ends the wait of the triggers of one timer, or of all (nil), without giving them a turn.
func (q *queue) dismiss(s *settings) {
	q.triggers = slices.DeleteFunc(q.triggers, func(w *waitingTrigger) bool {
		if s != nil && w.e != s {
			return false
		}
		close(w.ready)
		return true
	})
}
