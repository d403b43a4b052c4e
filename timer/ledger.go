package timer

import (
	"maps"
	"math"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A ledger records the outcome of ticks and runs, for Status, Explain, the metrics and the
// dead-man's check. It is the last part on the path of a tick, and calls no other part and no user
// code.
type ledger struct {
	events  *events // what is counted here is reported there, so that nothing is reported twice or left out
	metered bool    // keep tallies, because there are metrics; set before anything is counted
	classic bool    // with histograms that have fixed bounds
}

// A record is the ledger's data for one timer. Guarded by entry.mu.
type record struct {
	ticks   uint64
	started uint64
	skipped map[Reason]uint64
	ranAt   int64 // ns, when the latest run began; 0: none did
	deadman deadman
	ranLast uint64 // the value of ticks when this host last ran one
	history history
	last    decision // the run that ended last; zero: none has
	lastErr error    // of that run
	// With Config.TimerLabel, set when the timer is registered. Otherwise nil until something is
	// counted. Always nil if there are no metrics.
	tally *tally
}

// lastSuccess returns when a run of the timer last succeeded on any host, as far as this one knows.
func (e *entry) lastSuccess() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.deadman.success
}

// count calls add with the record's tally, if there are metrics. Called with entry.mu held.
func (l *ledger) count(r *record, add func(*tally)) { l.tally(r).count(add) }

// tally returns a record's tally, which it creates if necessary; nil: there are no metrics. Called
// with entry.mu held.
func (l *ledger) tally(r *record) *tally {
	if r.tally == nil && l.metered {
		r.tally = &tally{classic: l.classic, createdAt: time.Now()}
	}
	return r.tally
}

// missed counts n ticks for which this host was too late, from first to just before end.
func (l *ledger) missed(s *settings, n uint64, first, end time.Time) {
	tick := first.UnixMicro()
	s.entry.mu.Lock()
	s.entry.record.ticks += n
	l.skipMany(&s.entry.record, decision{tick: tick, extent: end.Sub(first) - time.Microsecond}, ReasonMissed, nil, n)
	s.entry.mu.Unlock()
	l.events.ticksSkipped(s, tick, n, ReasonMissed, nil)
}

// due counts a tick.
func (l *ledger) due(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.ticks++
	r.deadman.counted, r.deadman.reason = false, ""
	r.deadman.due()
}

// triedAgain makes the next outcome decide whether a tick that has waited counts towards
// AlarmAfter.
func (l *ledger) triedAgain(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman.due()
}

// dueNoAlarm counts a tick that does not count towards AlarmAfter: it came due before this host
// started, or only asks again about a timer with a fixed delay.
func (l *ledger) dueNoAlarm(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.ticks++
}

// skip counts a tick that started no run, and keeps the reason for Explain.
func (l *ledger) skip(s *settings, tick int64, reason Reason, why error) {
	s.entry.mu.Lock()
	l.skipMany(&s.entry.record, decision{tick: tick}, reason, why, 1)
	s.entry.mu.Unlock()
	l.events.ticksSkipped(s, tick, 1, reason, why)
}

// skipMany is called with entry.mu held.
func (l *ledger) skipMany(r *record, c decision, reason Reason, why error, n uint64) {
	if r.skipped == nil {
		r.skipped = make(map[Reason]uint64)
	}
	r.skipped[reason] += n
	l.tally(r).skip(reason, n)
	if reason != ReasonMissed {
		r.deadman.reason = reason
	}
	c.when, c.verdict = time.Now().UnixNano(), verdictOf(reason)
	r.history.add(c, why)
}

// uncount keeps the current tick from counting towards AlarmAfter: a run may still succeed, on any
// host, or the tick was not meant to run.
func (l *ledger) uncount(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman.uncount()
}

// postpone makes the store's next answer decide whether the current tick counts towards AlarmAfter.
func (l *ledger) postpone(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman.postpone()
}

// countOverdue counts the tick of a run that has reached its MaxRunTime towards AlarmAfter. Called
// with entry.mu held.
func (l *ledger) countOverdue(r *record) { r.deadman.count() }

// sinceRun returns how many ticks have come due since this host last ran one. ok is false if it
// never did.
func (l *ledger) sinceRun(e *entry) (ticks uint64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.ticks - e.record.ranLast, e.record.ranLast != 0
}

// began counts a run that has begun. Called with entry.mu held.
func (l *ledger) began(r *record, run *Run) {
	defer l.events.runStarted(run)
	r.ranAt = run.startedAt.UnixNano()
	if run.tick != 0 {
		r.started++
		r.deadman.uncount() // until the run has ended, or is overdue
		r.ranLast = r.ticks
		r.history.add(decision{tick: run.tick, cause: causeOf(run), when: run.startedAt.UnixNano()}, nil)
	}
	l.tally(r).began(run)
}

// ended counts a run that has ended. overdue: countOverdue has counted it. Called with entry.mu
// held.
func (l *ledger) ended(r *record, run *Run, outcome Outcome, took time.Duration, overdue bool, err error) {
	defer l.events.runEnded(run, outcome, took, err)
	switch {
	case outcome == OutcomeOK:
		r.deadman.succeeded(time.Now())
	case run.tick != 0 && !overdue:
		r.deadman.count()
	}
	r.last = decision{
		tick: run.tick, cause: causeOf(run), when: run.startedAt.UnixNano(), extent: took,
		verdict:  verdictOf(outcome),
		attempts: int16(min(run.Attempt(), math.MaxInt16)), slot: int32(run.Slot()),
	}
	r.lastErr = err
	if run.tick != 0 {
		if i := r.history.find(run.tick); i >= 0 && r.history.decisions[i].isOf(run) {
			r.history.set(i, r.last, err)
		}
	}
	l.tally(r).ended(outcome, took)
}

// triggered counts a call of Trigger by its result.
func (l *ledger) triggered(s *settings, err error) {
	result := "canceled"               // canceled by the caller's context
	refused, ok := err.(*RefusedError) // not errors.As, because the cause of the caller's context may be any code
	switch {
	case err == nil:
		result = "started"
	case ok:
		result = "refused_" + resultOf(refused.Reason)
	}
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	l.count(&s.entry.record, func(t *tally) { t.triggers.add(result, 1) })
}

// resetDeadman resets the dead-man's check, for a timer that continues the record of a removed one.
func (l *ledger) resetDeadman(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman = deadman{success: r.deadman.success}
}

// fill adds a record to a timer's status. Called with entry.mu held.
func (r *record) fill(t *TimerStatus, h dlock.Holder) {
	t.Ticks, t.Started, t.Skipped = r.ticks, r.started, maps.Clone(r.skipped)
	t.Last, t.TicksSinceSuccess = r.last.result(t.Name, h, r.lastErr), int(r.deadman.ticks)
	t.LastSuccessAt = r.deadman.success
	if r.ranAt != 0 {
		t.LastRunAt = time.Unix(0, r.ranAt)
	}
}
