package timer

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// defaultRetryFirstWait and defaultRetryMaxWait are the defaults of Retry.FirstWait and
	// Retry.MaxWait.
	defaultRetryFirstWait = time.Second
	defaultRetryMaxWait   = time.Minute

	maxRetryAttempts = 1000
	maxRetryWait     = 24 * time.Hour // a longer wait is useless and could overflow the arithmetic
)

// A Retry says how a handler that failed is called again within the same run. All attempts have the
// same tick, slot and fence. MaxRunTime bounds all attempts and waits together. The zero value does
// not retry.
//
// A run that waits for its next attempt keeps its slot. Ticks that are due in the meantime may find
// no free slot and be skipped. Therefore keep the waits short, and rely on the next tick for longer
// ones.
//
// No further attempt follows if the run's context has ended (the lease was lost, MaxRunTime is
// over, or draining took too long), if draining has begun, if the timer was removed, or if the wait
// would exceed MaxRunTime. The run then ends with the outcome of its last attempt, or with the
// cause of its context. A run without the store (StoreDownRunLocal) is also retried. If the host
// crashes, the run is not retried.
type Retry struct {
	// MaxAttempts is the maximum number of calls of the handler, including the first one. 1 to
	// 1,000. It must be set if any other field of Retry is set. Default 1: no retry.
	MaxAttempts int

	// FirstWait is the wait before the second attempt. Each further wait is twice as long as the
	// previous one, up to MaxWait. Each wait is randomly shortened by up to half, so that runs that
	// failed together are not retried together. FirstWait must be shorter than MaxRunTime. Default
	// 1 s, or MaxWait if that is shorter.
	FirstWait time.Duration

	// MaxWait is the longest wait. At least FirstWait, at most 24 h. Default 1 min, or FirstWait if
	// that is longer.
	MaxWait time.Duration

	// If decides whether another attempt may follow a failed one. Its argument is the error; a
	// panic is a *PanicError. It is not called for an error marked with Permanent, which is never
	// retried. It runs in the run's goroutine. If it panics, no attempt follows. Default nil:
	// errors are retried, panics are not.
	If func(error) bool
}

// Permanent marks an error that another attempt would not fix. If a handler returns a marked error,
// it is not called again in this run, whatever Retry says. errors.Is and errors.As ignore the mark,
// and RunResult.Err is err itself. Permanent(nil) is nil.
func Permanent(err error) error { return backoff.Permanent(err) }

// unmarked removes Permanent's mark.
func unmarked(err error) error {
	if p, ok := err.(*backoff.PermanentError); ok && p != nil && p.Err != nil {
		return p.Err
	}
	return err
}

func (r Retry) withDefaults() Retry {
	if r.MaxAttempts == 0 {
		r.MaxAttempts = 1
	}
	if r.FirstWait == 0 {
		r.FirstWait = defaultRetryFirstWait
		if r.MaxWait != 0 {
			r.FirstWait = min(r.FirstWait, r.MaxWait)
		}
	}
	if r.MaxWait == 0 {
		r.MaxWait = max(defaultRetryMaxWait, r.FirstWait)
	}
	return r
}

// check reports the faults of a Retry. maxRunTime may be 0 or invalid, because it is checked
// elsewhere.
func (r Retry) check(maxRunTime time.Duration, fault func(field, format string, args ...any)) {
	good := true
	bad := func(field, format string, args ...any) {
		good = false
		fault(field, format, args...)
	}
	switch {
	case r.MaxAttempts < 0:
		bad("Retry.MaxAttempts", "%d is negative: use 1 to %d, or 0 for no retry", r.MaxAttempts, maxRetryAttempts)
	case r.MaxAttempts > maxRetryAttempts:
		bad("Retry.MaxAttempts", "%d is more than %d: use a smaller number, and leave the rest to the next tick",
			r.MaxAttempts, maxRetryAttempts)
	case r.MaxAttempts == 0 && (r.FirstWait != 0 || r.MaxWait != 0 || r.If != nil):
		bad("Retry.MaxAttempts",
			"it is not set, so the rest of Retry does nothing: set how many attempts there may be, or 1 for no retry")
	}
	for _, wait := range []struct {
		field string
		value time.Duration
	}{{"Retry.FirstWait", r.FirstWait}, {"Retry.MaxWait", r.MaxWait}} {
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
	if r.MaxWait != 0 && r.MaxWait < r.FirstWait {
		fault("Retry.MaxWait", "%v is less than FirstWait (%v): raise it, or lower FirstWait", r.MaxWait, r.FirstWait)
		return
	}
	if maxRunTime == 0 {
		maxRunTime = defaultMaxRunTime
	}
	if r = r.withDefaults(); r.MaxAttempts > 1 && maxRunTime > 0 && r.FirstWait >= maxRunTime {
		fault("Retry.FirstWait",
			"%v is not shorter than MaxRunTime (%v), which counts the waits, too: lower it, or raise MaxRunTime",
			r.FirstWait, maxRunTime)
	}
}

// wants reports whether to retry after an error. It calls Retry.If and methods of the user's error.
// If one of them panics, it returns the panic.
func (r Retry) wants(err error) (yes bool, panicked error) {
	panicked = guard.Call("policy", func() error {
		if _, final := errors.AsType[*backoff.PermanentError](err); final {
			return nil
		}
		if r.If != nil {
			yes = r.If(err)
			return nil
		}
		yes = guard.Panicked(err) == nil
		return nil
	})
	return yes, panicked
}

// backOff returns the waits of one run. Each wait is between half and all of its nominal length.
func (r Retry) backOff() backoff.ExponentialBackOff {
	return backoff.ExponentialBackOff{ // RandomizationFactor varies a wait in both directions
		InitialInterval:     r.FirstWait - r.FirstWait/4,
		MaxInterval:         r.MaxWait - r.MaxWait/4,
		RandomizationFactor: 1. / 3,
		Multiplier:          2,
	}
}

// A retrying is the state of a run that has been retried.
type retrying struct {
	waits backoff.ExponentialBackOff
	alarm *time.Timer // wakes the run to check whether its wait is over
}

// recheckLease is the time between two checks while the lease of a waiting run is in doubt.
const recheckLease = time.Second

// again waits for the next attempt after a failed one, and counts it. It returns false if no
// further attempt follows.
func (r *runner) again(s *settings, run *Run, err error) bool {
	policy, attempt := s.timer.Retry, run.Attempt()
	if err == nil || attempt >= policy.MaxAttempts {
		return false
	}
	failedAt := run.now() // before Retry.If, which may take a long time
	if !r.mayRetry(s, run) {
		return false
	}
	yes, panicked := policy.wants(err)
	if panicked != nil {
		r.log.Error("timer: Retry.If, or a method of the error, panicked: no retry",
			"timer", s.timer.Name, "panic", guard.Panicked(panicked).Value)
	}
	if !yes {
		return false
	}
	if run.retrying == nil {
		s.entry.mu.Lock()
		run.retrying = &retrying{waits: policy.backOff(), alarm: time.NewTimer(time.Hour)}
		s.entry.mu.Unlock()
	}
	wait := run.retrying.waits.NextBackOff()
	if time.Until(run.endsAt()) <= wait {
		return false // waiting would hold the slot for nothing
	}
	r.events.attemptFailed(run, failedAt, wait, err)
	r.log.flush()
	return r.waitToRetry(s, run, time.Now().Add(wait))
}

func (r *runner) waitToRetry(s *settings, run *Run, until time.Time) bool {
	for {
		s.entry.mu.Lock()
		left := time.Until(until)
		if !r.mayRetry(s, run) {
			s.entry.mu.Unlock()
			return false
		}
		if left <= 0 && !run.Degraded() && !run.Valid() {
			left = recheckLease // the lease is in doubt: soon the context ends or the run is degraded
		}
		if left <= 0 {
			run.attempt.Add(1)
			r.ledger.count(&s.entry.record, func(t *tally) { t.retries++ })
			s.entry.mu.Unlock()
			return true
		}
		run.retrying.alarm.Reset(left)
		s.entry.mu.Unlock()
		select {
		case <-run.ctx.Done():
		case <-run.retrying.alarm.C:
		}
	}
}

// mayRetry reports whether a run may wait for another attempt.
func (r *runner) mayRetry(s *settings, run *Run) bool {
	return r.registry.starting() && !s.removed() && run.ctx.cause() == nil
}

// endWaits wakes the runs of a timer that wait for another attempt, so that they end if no attempt
// may follow.
func (r *runner) endWaits(s *settings) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	for _, run := range s.entry.runs {
		if run != nil && run.retrying != nil {
			run.retrying.alarm.Reset(0)
		}
	}
}
