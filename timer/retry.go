package timer

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// defaultRetryFirstWait and defaultRetryMaxWait are the waits between attempts unless the timer
	// says otherwise.
	defaultRetryFirstWait = time.Second
	defaultRetryMaxWait   = time.Minute

	maxRetryAttempts = 1000
	maxRetryWait     = 24 * time.Hour // longer than makes sense, and short enough for the arithmetic not to overflow
)

// A Retry says how a handler that failed is called again within the same run: with the same tick,
// slot and fence, and one MaxRunTime for all attempts and waits together. The zero value does not
// retry.
//
// A run that waits for its next attempt keeps its slot, so ticks that come due meanwhile may be
// skipped because no slot is free: keep waits short, and leave long ones to the next tick.
//
// No further attempt is made once the run's context has ended (its lease was lost, MaxRunTime,
// draining took too long), once draining has begun, or once the timer was removed; nor if the wait
// would outlast MaxRunTime. The run then ends with the outcome of its last attempt, or with the
// cause of its context. A run that goes on without the store (StoreDownRunLocal) is retried, too. A
// crash of the host is not retried: the run is gone with it.
type Retry struct {
	// MaxAttempts is how often the handler is called at most, the first time included. 1 to 1,000.
	// Default 1: no retry.
	MaxAttempts int

	// FirstWait is how long to wait before the second attempt; each further wait is twice as long
	// as the one before. Each wait is shortened at random by up to half, so that runs that failed
	// together are not retried together. Shorter than MaxRunTime. Default 1 s, or MaxWait if that
	// is shorter.
	FirstWait time.Duration

	// MaxWait is the longest wait. At least FirstWait, at most 24 h. Default 1 min, or FirstWait if
	// that is longer.
	MaxWait time.Duration

	// If decides, after a failed attempt, whether another may follow. It is also asked about a
	// panic, which it gets as a *PanicError, but not about an error marked with Permanent. It runs
	// on the run's goroutine; if it panics, no attempt follows. Default: every error, but no panic.
	If func(error) bool
}

// Permanent marks an error that another attempt would not fix: a handler that returns it is not
// called again in this run, whatever Retry says. errors.Is and errors.As see through the mark, and
// RunResult.Err is err itself. Permanent(nil) is nil.
func Permanent(err error) error { return backoff.Permanent(err) }

// unmarked removes Permanent's mark.
func unmarked(err error) error {
	if p, ok := err.(*backoff.PermanentError); ok && p != nil && p.Err != nil {
		return p.Err
	}
	return err
}

func (p Retry) withDefaults() Retry {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 1
	}
	if p.FirstWait == 0 {
		p.FirstWait = defaultRetryFirstWait
		if p.MaxWait != 0 {
			p.FirstWait = min(p.FirstWait, p.MaxWait)
		}
	}
	if p.MaxWait == 0 {
		p.MaxWait = max(defaultRetryMaxWait, p.FirstWait)
	}
	return p
}

// check reports the faults of a policy. maxRunTime may be 0 or invalid: it is checked elsewhere.
func (p Retry) check(maxRunTime time.Duration, fault func(field, format string, args ...any)) {
	good := true
	bad := func(field, format string, args ...any) {
		good = false
		fault(field, format, args...)
	}
	switch {
	case p.MaxAttempts < 0:
		bad("Retry.MaxAttempts", "%d is negative: use 1 to %d, or 0 for no retry", p.MaxAttempts, maxRetryAttempts)
	case p.MaxAttempts > maxRetryAttempts:
		bad("Retry.MaxAttempts", "%d is more than %d: use a smaller number, and leave the rest to the next tick",
			p.MaxAttempts, maxRetryAttempts)
	case p.MaxAttempts == 0 && (p.FirstWait != 0 || p.MaxWait != 0 || p.If != nil):
		bad("Retry.MaxAttempts",
			"it is not set, so the rest of Retry does nothing: set how many attempts there may be, or 1 for no retry")
	}
	for _, wait := range []struct {
		field string
		value time.Duration
	}{{"Retry.FirstWait", p.FirstWait}, {"Retry.MaxWait", p.MaxWait}} {
		switch {
		case wait.value < 0:
			bad(wait.field, "%v is negative: use a positive duration, or 0 for the default", wait.value)
		case wait.value > maxRetryWait:
			bad(wait.field,
				"%v is more than %v: the slot is held meanwhile, so use a shorter one, and leave the rest to the "+
					"next tick",
				wait.value, maxRetryWait)
		}
	}
	if !good {
		return
	}
	if p.MaxWait != 0 && p.MaxWait < p.FirstWait {
		fault("Retry.MaxWait", "%v is less than FirstWait (%v): raise it, or lower FirstWait", p.MaxWait, p.FirstWait)
		return
	}
	if maxRunTime == 0 {
		maxRunTime = defaultMaxRunTime
	}
	if p = p.withDefaults(); p.MaxAttempts > 1 && maxRunTime > 0 && p.FirstWait >= maxRunTime {
		fault("Retry.FirstWait",
			"%v is not shorter than MaxRunTime (%v), which counts the waits, too: lower it, or raise MaxRunTime",
			p.FirstWait, maxRunTime)
	}
}

// wants reports whether an error is to be retried. It calls methods of the user's error and
// Retry.If, and returns their panic.
func (p Retry) wants(err error) (yes bool, panicked error) {
	panicked = guard.Call("policy", func() error {
		if _, final := errors.AsType[*backoff.PermanentError](err); final {
			return nil
		}
		if p.If != nil {
			yes = p.If(err)
			return nil
		}
		yes = guard.Panicked(err) == nil
		return nil
	})
	return yes, panicked
}

// backOff returns the waits of one run, each between half and all of its nominal length.
func (p Retry) backOff() backoff.ExponentialBackOff {
	return backoff.ExponentialBackOff{ // it varies a wait in both directions, by RandomizationFactor
		InitialInterval:     p.FirstWait - p.FirstWait/4,
		MaxInterval:         p.MaxWait - p.MaxWait/4,
		RandomizationFactor: 1. / 3,
		Multiplier:          2,
	}
}

// A retrying is the state of a run that has been retried.
type retrying struct {
	waits backoff.ExponentialBackOff
	alarm *time.Timer // wakes the run, which then checks whether its wait is over
}

// recheckLease is after how long a run whose lease is in doubt checks again.
const recheckLease = time.Second

// again reports whether another attempt follows a failed one. If so, it has waited for it and
// counted it.
func (n *runner) again(s *settings, r *Run, err error) bool {
	policy, attempt := s.timer.Retry, r.Attempt()
	if err == nil || attempt >= policy.MaxAttempts {
		return false
	}
	failedAt := r.now() // before Retry.If, which may take long
	if !n.mayRetry(s, r) {
		return false
	}
	yes, panicked := policy.wants(err)
	if panicked != nil {
		n.log.Error("timer: Retry.If, or the error it was to judge, panicked: no retry",
			"timer", s.timer.Name, "panic", guard.Panicked(panicked).Value)
	}
	if !yes {
		return false
	}
	if r.retrying == nil {
		s.entry.mu.Lock()
		r.retrying = &retrying{waits: policy.backOff(), alarm: time.NewTimer(time.Hour)}
		s.entry.mu.Unlock()
	}
	wait := r.retrying.waits.NextBackOff()
	if time.Until(r.endsAt()) <= wait {
		return false // it would hold the slot for nothing
	}
	n.events.attemptFailed(r, failedAt, wait, err)
	n.log.flush()
	return n.waitToRetry(s, r, time.Now().Add(wait))
}

func (n *runner) waitToRetry(s *settings, r *Run, until time.Time) bool {
	for {
		s.entry.mu.Lock()
		left := time.Until(until)
		if !n.mayRetry(s, r) {
			s.entry.mu.Unlock()
			return false
		}
		if left <= 0 && !r.Degraded() && !r.Valid() {
			left = recheckLease // the lease is in doubt: soon the context ends or the run is degraded
		}
		if left <= 0 {
			r.attempt.Add(1)
			n.ledger.count(&s.entry.record, func(t *tally) { t.retries++ })
			s.entry.mu.Unlock()
			return true
		}
		r.retrying.alarm.Reset(left)
		s.entry.mu.Unlock()
		select {
		case <-r.ctx.Done():
		case <-r.retrying.alarm.C:
		}
	}
}

// mayRetry reports whether a run may wait for another attempt.
func (n *runner) mayRetry(s *settings, r *Run) bool {
	return n.registry.starting() && !s.removed() && r.ctx.cause() == nil
}

// endWaits wakes the runs of a timer that wait for another attempt, so that they end if no attempt
// may follow.
func (n *runner) endWaits(s *settings) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, r := range s.entry.runs {
		if r != nil && r.retrying != nil {
			r.retrying.alarm.Reset(0)
		}
	}
}
