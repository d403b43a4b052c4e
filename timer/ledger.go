package timer

import (
	"maps"
	"math"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A ledger records the outcomes of ticks and runs, for Status, Explain, the metrics and the
// dead-man's check. It is the last part on the path of a tick. It calls no user code and no other
// part except events.
type ledger struct {
	events  *events // every count is also reported there, so that no event is reported twice or left out
	metered bool    // keep tallies, because there are metrics; set before the first count
	classic bool    // with histograms that have fixed buckets
}

// A record is the ledger's data for one timer. entry.mu guards it.
type record struct {
	ticks   uint64
	started uint64
	skipped map[Reason]uint64
	ranAt   int64 // ns, when the latest run began; 0 if none has
	deadman deadman
	ranLast uint64 // the value of ticks when this host last ran a tick
	history history
	last    decision // the run that ended last; zero if none has
	lastErr error    // the error of that run
	// With Config.TimerLabel, tally is set when the timer is registered. Otherwise it is nil until
	// the first count. It is always nil if there are no metrics.
	tally *tally
}

// lastSuccess returns when a run of the timer last succeeded on any host, as far as this host
// knows.
func (e *entry) lastSuccess() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.deadman.success
}

// count calls add with the record's tally, if there are metrics. The caller holds entry.mu.
func (l *ledger) count(r *record, add func(*tally)) { l.tally(r).count(add) }

// tally returns a record's tally and creates it if necessary. It returns nil if there are no
// metrics. The caller holds entry.mu.
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

// triedAgain makes the next outcome of a tick that has waited decide whether the tick counts
// towards AlarmAfter.
func (l *ledger) triedAgain(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman.due()
}

// dueNoAlarm counts a tick that does not count towards AlarmAfter. Such a tick was due before this
// host started, or is only another attempt of a timer with a fixed delay.
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

// skipMany is like skip, for n ticks. The caller holds entry.mu.
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

// uncount prevents the current tick from counting towards AlarmAfter. A run may still succeed, on
// any host, or the tick was not meant to run.
func (l *ledger) uncount(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman.uncount()
}

// postpone defers the decision whether the current tick counts towards AlarmAfter until the store's
// next answer.
func (l *ledger) postpone(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman.postpone()
}

// countOverdue counts the tick of a run that has reached its MaxRunTime towards AlarmAfter. The
// caller holds entry.mu.
func (l *ledger) countOverdue(r *record) { r.deadman.count() }

// sinceRun returns how many ticks were due since this host last ran one. ok is false if this host
// never did.
func (l *ledger) sinceRun(e *entry) (ticks uint64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.ticks - e.record.ranLast, e.record.ranLast != 0
}

// began counts a run that has begun. The caller holds entry.mu.
func (l *ledger) began(r *record, run *Run) {
	defer l.events.runStarted(run)
	r.ranAt = run.startedAt.UnixNano()
	if run.tick != 0 {
		r.started++
		r.deadman.uncount() // until the run has ended or is overdue
		r.ranLast = r.ticks
		r.history.add(decision{tick: run.tick, cause: causeOf(run), when: run.startedAt.UnixNano()}, nil)
	}
	l.tally(r).began(run)
}

// ended counts a run that has ended. overdue means that countOverdue has already counted it. The
// caller holds entry.mu.
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
	result := "canceled"               // the caller's context ended
	refused, ok := err.(*RefusedError) // not errors.As, because the error of the caller's context may run any code
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

// resetDeadman resets the dead-man's check for a timer that continues the record of a removed
// timer.
func (l *ledger) resetDeadman(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.record
	r.deadman = deadman{success: r.deadman.success}
}

// fill adds a record to the status of a timer. The caller holds entry.mu.
func (r *record) fill(t *TimerStatus, h dlock.Holder) {
	t.Ticks, t.Started, t.Skipped = r.ticks, r.started, maps.Clone(r.skipped)
	t.Last, t.TicksSinceSuccess = r.last.result(t.Name, h, r.lastErr), int(r.deadman.ticks)
	t.LastSuccessAt = r.deadman.success
	if r.ranAt != 0 {
		t.LastRunAt = time.Unix(0, r.ranAt)
	}
}
