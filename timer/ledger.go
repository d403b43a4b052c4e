package timer

import (
	"maps"
	"math"
	"sync"
	"time"
)

// A ledger counts what became of ticks and runs, for Status, Explain, the metrics and the
// dead-man's check. It is where the way of a tick ends: it calls no other part and no code of the
// user's.
type ledger struct {
	metered bool // there are metrics, for which tallies are kept; set before anything is counted

	// mu guards all records. It is the last mutex that anybody takes.
	mu sync.Mutex
}

// A record is what the ledger has of one timer. A timer that takes the name of one that was
// removed, and of which runs go on, goes on with its record.
type record struct {
	ticks   uint64
	started uint64
	skipped map[Reason]uint64
	deadman deadman
	ranLast uint64 // ticks, when this host last ran one
	history history
	last    decision // of the run that ended last; zero: none has
	lastErr error    // of that run
	tally   *tally   // nil: nothing yet, or there are no metrics
}

// read has a function look at a record. It must call no part that takes another mutex.
func (l *ledger) read(r *record, look func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	look(r)
}

// count has a function count something for the metrics; it is not called if there are none.
func (l *ledger) count(r *record, add func(*tally)) {
	if !l.metered {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	add(l.tally(r))
}

// tally is what is counted for the metrics alone, from now on. Called with mu held.
func (l *ledger) tally(r *record) *tally {
	if r.tally == nil {
		r.tally = &tally{createdAt: time.Now()}
	}
	return r.tally
}

// missed counts ticks that came due before the latest one, from first to just before end, while
// this host was not there.
func (l *ledger) missed(r *record, n uint64, first, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ticks += n
	l.skipMany(r, decision{tick: first.UnixMicro(), extent: end.Sub(first) - time.Microsecond}, ReasonMissed, nil, n)
}

// cameDue counts a tick.
func (l *ledger) cameDue(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ticks++
	r.deadman.count()
	r.deadman.reason = ""
}

// cameLate counts a tick that came due before this host was there, and does not expect a success of
// it.
func (l *ledger) cameLate(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ticks++
}

// skip counts a tick that started nothing, and remembers why for Explain.
func (l *ledger) skip(r *record, tick int64, reason Reason, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skipMany(r, decision{tick: tick}, reason, why, 1)
}

// skipMany is called with mu held.
func (l *ledger) skipMany(r *record, c decision, reason Reason, why error, n uint64) {
	if r.skipped == nil {
		r.skipped = make(map[Reason]uint64)
	}
	r.skipped[reason] += n
	if l.metered {
		l.tally(r) // so that the counter is no younger than what it counts
	}
	if reason != ReasonMissed {
		r.deadman.reason = reason
	}
	c.when, c.verdict = time.Now().UnixNano(), verdictOf(reason)
	r.history.add(c, why)
}

// discount keeps the tick at hand from counting towards AlarmAfter: a success may still come of it,
// here or elsewhere, or none is wanted.
func (l *ledger) discount(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.deadman.discount()
}

// putOff leaves it to the store's next answer whether the tick at hand counts towards AlarmAfter.
func (l *ledger) putOff(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.deadman.putOff()
}

// overdue counts the tick of a run that has reached its MaxRunTime towards AlarmAfter.
func (l *ledger) overdue(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.deadman.count()
}

// heardOfSuccess takes in what the store's answer told of a success on any host, which is that long
// ago; 0: it told of none.
func (l *ledger) heardOfSuccess(r *record, age, interval time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.deadman.heard(age, interval)
}

// sinceRun is how many ticks have come due since this host last ran one. ok is false if it never
// did.
func (l *ledger) sinceRun(r *record) (ticks uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.ticks - r.ranLast, r.ranLast != 0
}

// began counts a run that has begun.
func (l *ledger) began(r *record, run *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if run.tick != 0 {
		r.started++
		r.deadman.discount() // until it has ended, or is overdue
		r.ranLast = r.ticks
		r.history.add(decision{tick: run.tick, ran: true, when: run.started.UnixNano()}, nil)
	}
	if !l.metered {
		return
	}
	t := l.tally(r)
	if run.tick != 0 {
		t.lag.observe(callBounds, max(0, run.started.Sub(time.UnixMicro(run.tick))))
	}
	if run.Degraded() {
		t.fallbackRuns++
	}
}

// ended counts a run that has ended. overdue: that was counted before.
func (l *ledger) ended(r *record, run *Run, outcome Outcome, took time.Duration, overdue bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case outcome == OutcomeOK:
		r.deadman.succeeded(time.Now())
	case run.tick != 0 && !overdue:
		r.deadman.count()
	}
	r.last = decision{
		tick: run.tick, ran: true, when: run.started.UnixNano(), extent: took, verdict: verdictOf(outcome),
		attempts: int16(min(run.Attempt(), math.MaxInt16)), slot: int32(run.Slot()),
	}
	r.lastErr = err
	if run.tick != 0 {
		if i := r.history.find(run.tick); i >= 0 && r.history.decisions[i].isOf(run) {
			r.history.set(i, r.last, err)
		}
	}
	if l.metered {
		l.tally(r).ended(outcome, took)
	}
}

// startOver has the dead-man's check begin anew, for a timer that goes on with the record of one
// that was removed.
func (l *ledger) startOver(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.deadman = deadman{success: r.deadman.success}
}

// fill fills in what Status tells of a record.
func (l *ledger) fill(r *record, t *TimerStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Ticks, t.Started, t.Skipped = r.ticks, r.started, maps.Clone(r.skipped)
	t.Last, t.TicksSinceSuccess = r.last.result(r.lastErr), int(r.deadman.ticks)
}
