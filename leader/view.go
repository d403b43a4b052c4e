package leader

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/internal/notify"
)

// maxFailures is how many terms in a row may fail, while no other host is known to lead, before
// this host is not healthy. A host beside a leader is now and then elected twice in a row, between
// two terms of that leader, but hardly five times.
const maxFailures = 5

// A view is what an Elector knows. The Elector's mutex guards it.
type view struct {
	state     State
	changedAt time.Time
	startedAt time.Time // when Run began
	leader    dlock.Holder
	electedAt time.Time
	seenAt    time.Time
	term      *Term // StateLeading and StateEnding
	err       error
	paused    bool // the store refused last because an operator paused the role
	answered  bool // the store has answered once
	retryAt   time.Time
	// Until when this host lets others try after its last term; it does not ask who leads until
	// then.
	backOffUntil time.Time
	// How many terms of this host have failed since it last knew another leader or had a successful
	// term, and when the first of them failed.
	failures     int
	failingSince time.Time
	terms        [len(outcomes)]uint64
}

// lastSeen returns when a host was last known to lead.
func (v *view) lastSeen() time.Time {
	if v.state == StateLeading {
		return time.Now()
	}
	return v.seenAt
}

// set changes the state. Called with mu held, as are all methods of view.
func (v *view) set(s State, err error) {
	if v.state != s {
		v.state, v.changedAt = s, time.Now()
	}
	v.err, v.retryAt, v.paused = err, time.Time{}, false
}

// failing reports whether the terms of this host fail in a row while no other host leads. A term
// that has lasted for MaxBackOff counts as a success.
func (v *view) failing(timeout time.Duration) bool {
	if v.failures < maxFailures || time.Since(v.failingSince) <= timeout {
		return false
	}
	return v.state != StateLeading || time.Since(v.changedAt) < MaxBackOff
}

// lead records who leads.
func (v *view) lead(h dlock.Holder, since time.Time) {
	v.leader, v.electedAt, v.seenAt = h, since, time.Now()
}

func (e *Elector) began() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.view.startedAt = time.Now()
	e.view.set(StateStandby, nil)
}

// stopped records that Run has ended, and ends the log.
func (e *Elector) stopped(err error) {
	e.mu.Lock()
	e.view.set(StateStopped, err)
	e.view.term = nil
	e.mu.Unlock()
	e.reporter.Close(notify.LogGrace)
}

func (e *Elector) setRetryIn(wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.view.retryAt = time.Now().Add(wait)
}

// refused records that the store has answered, and why this host may not lead.
func (e *Elector) refused(no *dlock.NotAcquiredError) {
	full := no.Reason == dlock.ReasonFull
	e.mu.Lock()
	wasDown, changed := e.view.state == StateStoreDown, false
	e.view.answered = true
	if full {
		// If there are several leaders, the store names a different one each time.
		changed = e.view.leader == (dlock.Holder{}) || e.role.Max == 1 && e.view.leader != no.Holder
		e.view.lead(no.Holder, time.Now().Add(-no.HeldFor))
		e.view.failures = 0
		e.view.set(StateStandby, nil)
	} else {
		changed = e.view.err == nil || reasonOf(e.view.err) != no.Reason
		e.view.set(StateStandby, no)
		e.view.paused = no.Reason == dlock.ReasonPaused
	}
	e.mu.Unlock()
	if wasDown {
		e.log(slog.LevelInfo, "leader: the store answers again")
	}
	switch {
	case changed && full:
		e.log(slog.LevelInfo, "leader: standing by", "leader", no.Holder.String())
	case changed:
		e.log(slog.LevelInfo, "leader: no host may lead now", "reason", string(no.Reason), "err", no)
	}
}

func reasonOf(err error) dlock.Reason {
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		return no.Reason
	}
	return ""
}

// failed records that the store did not answer, and returns whether it ever has. The known leader
// stays in the view: it may still lead, and only the store knows.
func (e *Elector) failed(err error) (answered bool) {
	setup := errors.Is(err, dlock.ErrSetup)
	e.mu.Lock()
	was, before := e.view.state, e.view.err
	answered = e.view.answered
	e.view.answered = answered || setup
	e.view.set(StateStoreDown, err)
	e.mu.Unlock()
	if was != StateStoreDown || errors.Is(before, dlock.ErrSetup) != setup {
		e.log(slog.LevelWarn, "leader: the store fails, so this host does not lead", "err", err)
	}
	return answered
}

func (e *Elector) elected(term *Term) {
	e.mu.Lock()
	e.view.answered = true
	e.view.term = term
	e.view.lead(e.session.Holder(), term.lease.AcquiredAt())
	e.view.set(StateLeading, nil)
	e.mu.Unlock()
	e.log(slog.LevelInfo, "leader: elected", "slot", term.Slot(), "fence", int64(term.Fence()), "holder",
		e.session.Holder().String())
}

// ending records that the function's context has ended, because the lease was lost or Run's context
// has ended.
func (e *Elector) ending(lost error) {
	e.mu.Lock()
	e.view.seenAt = time.Now()
	e.view.set(StateEnding, lost)
	e.mu.Unlock()
	if lost != nil {
		e.log(slog.LevelWarn, "leader: lost", "err", lost)
	}
}

// ended records how a term has ended, and returns how long to wait. A host that gave up the role
// waits for at least a RetryInterval, in which every other host tries once.
func (e *Elector) ended(outcome Outcome, err error) (wait time.Duration) {
	e.mu.Lock()
	term := e.view.term
	took := time.Since(term.lease.AcquiredAt())
	wait, backsOff := e.waitAfter(outcome, err, took)
	e.view.ended(outcome, err, took)
	if backsOff {
		e.view.backOffUntil = time.Now().Add(wait)
	}
	e.mu.Unlock()
	line := []any{"slot", term.Slot(), "fence", int64(term.Fence()), "took", took, "outcome", string(outcome)}
	if outcome != OutcomeFailed {
		e.log(slog.LevelInfo, "leader: the term has ended", line...)
		return wait
	}
	line = append(line, "retry_in", wait, "err", err)
	if p := guard.Panicked(err); p != nil {
		line = append(line, "stack", string(p.Stack))
	}
	e.log(slog.LevelError, "leader: the function failed", line...)
	return wait
}

// waitAfter returns how long to wait after a term, and whether the wait is to let others try.
func (e *Elector) waitAfter(outcome Outcome, err error, took time.Duration) (wait time.Duration, backsOff bool) {
	if outcome != OutcomeFailed || took >= MaxBackOff {
		e.backOffs = 0
	}
	if outcome == OutcomeFailed {
		e.backOffs++
		most := max(MaxBackOff, e.role.RetryInterval)
		return max(e.role.RetryInterval, loop.Backoff(2*e.role.RetryInterval, most, e.backOffs)), true
	}
	if lost, ok := errors.AsType[*dlock.LostError](err); outcome == OutcomeReturned || ok && lost.RevokedBy != nil {
		return e.role.RetryInterval + rand.N(e.role.RetryInterval), true
	}
	return e.interval(), false
}

// ended records how a term has ended.
func (v *view) ended(outcome Outcome, err error, took time.Duration) {
	now := time.Now()
	if v.state == StateLeading {
		v.seenAt = now
	}
	v.term, v.leader, v.electedAt = nil, dlock.Holder{}, time.Time{}
	v.terms[slices.Index(outcomes[:], outcome)]++
	switch {
	case outcome != OutcomeFailed || took >= MaxBackOff:
		v.failures = 0
	case v.failures == 0:
		v.failures, v.failingSince = 1, now
	default:
		v.failures++
	}
	if outcome == OutcomeFailed || outcome == OutcomeReturned {
		v.set(StateBackingOff, err)
	} else {
		v.set(StateStandby, nil)
	}
}

func (e *Elector) log(level slog.Level, line string, args ...any) {
	e.reporter.Log(level, line, append([]any{"role", e.role.Name}, args...)...)
}
