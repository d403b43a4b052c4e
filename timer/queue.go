package timer

import (
	"math"
	"slices"
)

// A queue has the ticks and the Trigger calls that wait for their turn. They wait for a call to the
// store while maxInFlight calls are in flight, or for a place while MaxRuns places are taken. Half
// of the turns go to the tick whose timer is next due soonest, so that a peak of a thousand daily
// timers does not delay a timer that is due every second. A quarter goes to the tick that has
// waited longest, and a quarter to the Trigger that has waited longest, so that frequent timers
// cannot take all turns. registry.mu guards a queue.
type queue struct {
	n        int        // the number of ticks that wait
	byNext   tickHeap   // ordered by the timer's next tick; may have timers whose tick has left
	byAge    []*pending // oldest first; may have ticks that have left
	triggers []*waitingTrigger
	turns    uint
}

// A waitingTrigger is a call of Trigger that waits.
type waitingTrigger struct {
	s       *settings
	ready   chan struct{} // closed when the wait is over
	hasTurn bool          // its turn has come
}

// add adds a tick.
func (q *queue) add(p *pending) {
	p.queue = q
	q.n++
	q.byNext.push(nextDue(p.s.entry))
	q.byAge = append(q.byAge, p)
	if len(q.byAge) > 2*q.n+maxInFlight || len(q.byNext) > 2*q.n+maxInFlight {
		q.tidy()
	}
}

// tidy drops ticks that have left. A tick that is taken from one list remains in the other until
// then.
func (q *queue) tidy() {
	q.byAge = slices.DeleteFunc(q.byAge, func(p *pending) bool { return p.queue != q })
	q.byNext = nil
	for _, p := range q.byAge {
		q.byNext.push(nextDue(p.s.entry))
	}
}

// nextDue returns a timer's item in byNext.
func nextDue(e *entry) item {
	next, _ := e.ticks.read()
	if next == 0 { // the timer has no next tick
		next = math.MaxInt64
	}
	return item{when: next, e: e}
}

// remove removes a tick.
func (q *queue) remove(p *pending) {
	p.queue = nil
	if q.n--; q.n == 0 {
		q.byNext, q.byAge = nil, nil
	}
}

// oldest removes the tick that has waited longest, and returns nil if none waits.
func (q *queue) oldest() *pending {
	for len(q.byAge) > 0 {
		p := q.byAge[0]
		q.byAge = q.byAge[1:]
		if p.queue == q {
			q.remove(p)
			return p
		}
	}
	return nil
}

// soonest removes the tick whose timer is next due soonest, and returns nil if none waits.
func (q *queue) soonest() *pending {
	for len(q.byNext) > 0 {
		if p := q.byNext.pop().e.pending; p != nil && p.queue == q {
			q.remove(p)
			return p
		}
	}
	return nil
}

// serve gives the next turn to a Trigger, which it wakes, or to a tick. It returns nil and nil if
// nothing waits.
func (q *queue) serve() (*pending, *waitingTrigger) {
	q.turns++
	switch {
	case len(q.triggers) > 0 && (q.turns%4 == 0 || q.n == 0):
		w := q.triggers[0]
		q.triggers = q.triggers[1:]
		w.hasTurn = true
		close(w.ready)
		return nil, w
	case q.turns%4 == 2:
		return q.oldest(), nil
	default:
		return q.soonest(), nil
	}
}

// enqueue adds a call of Trigger.
func (q *queue) enqueue(s *settings) *waitingTrigger {
	w := &waitingTrigger{s: s, ready: make(chan struct{})}
	q.triggers = append(q.triggers, w)
	return w
}

// hasTriggerOf reports whether a call of Trigger waits for a run of the timer.
func (q *queue) hasTriggerOf(e *entry) bool {
	return slices.ContainsFunc(q.triggers, func(w *waitingTrigger) bool { return w.s.entry == e })
}

// leave removes a call of Trigger that no longer waits, and reports whether its turn has come.
func (q *queue) leave(w *waitingTrigger) bool {
	if !w.hasTurn {
		q.triggers = slices.DeleteFunc(q.triggers, func(other *waitingTrigger) bool { return other == w })
	}
	return w.hasTurn
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
