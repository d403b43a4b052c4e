package durable

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
)

// A handler is a registered Handler with its options.
type handler struct {
	name    string
	call    Handler // with middleware
	options HandlerOptions
	counts  counts
}

// row returns the handler's row in the database.
func (h *handler) row() store.Handler {
	return store.Handler{Name: h.name, MaxConcurrency: h.options.MaxConcurrency,
		MaxPerPartition: h.options.MaxPerPartition, MaxAttempts: h.options.Retry.MaxAttempts, Rate: h.options.Rate,
		Per: h.options.Per}
}

// try calls the handler, and returns a panic as an error.
func (h *handler) try(ctx context.Context, run *Run) error {
	return guard.Call("handler", func() error { return h.call(ctx, run) })
}

// wait returns how long to wait after the given number of counted attempts: FirstWait, doubled for
// each attempt after the first, at most MaxWait, and shortened at random by up to half.
func (r Retry) wait(attempt int) time.Duration { return loop.Backoff(r.FirstWait, r.MaxWait, attempt) }

// result returns the result of an attempt, given the cause of its context and the handler's error.
func (h *handler) result(run store.Run, took time.Duration, cause, err error) store.Result {
	r := store.Result{RunKey: run.RunKey, Error: textOf(err), Took: took}
	mark := markOf(err)
	panicked := guard.Panicked(err) != nil
	switch {
	case errors.Is(cause, ErrCanceled):
		r.Outcome, r.State = store.OutcomeCanceled, store.StateCanceled
		return r
	case panicked:
		r.Outcome = store.OutcomePanicked
	case errors.Is(cause, ErrMaxRunTime):
		r.Outcome = store.OutcomeTimedOut
		if err == nil {
			r.Error = ErrMaxRunTime.Error()
		}
	case err == nil:
		r.Outcome, r.State = store.OutcomeOK, store.StateSucceeded
		return r
	case errors.Is(cause, ErrDraining) && (mark == nil || !mark.permanent):
		r.Outcome, r.State = store.OutcomeInterrupted, store.StateQueued
		return r
	default:
		r.Outcome = store.OutcomeFailed
	}
	left := h.options.Retry.timeLeft(failingFor(run, took))
	switch {
	case mark != nil && mark.permanent || run.MaxAttempts > 0 && run.Attempt >= run.MaxAttempts || left <= 0:
		r.State = store.StateDead
	case mark != nil:
		r.State, r.RetryIn = store.StateQueued, min(left, mark.wait)
	default:
		r.State, r.RetryIn = store.StateQueued, min(left, h.options.Retry.wait(run.Attempt-run.Uncounted))
	}
	return r
}

// failingFor returns how long a run has been failing: from the beginning of its first failed
// attempt to the end of the current attempt, which has failed.
func failingFor(run store.Run, took time.Duration) time.Duration {
	if run.FailingSince.IsZero() {
		return took
	}
	return max(0, run.ClaimedAt.Sub(run.FailingSince)) + took
}

// timeLeft returns how soon a run that has been failing for elapsed may begin its last attempt.
func (r Retry) timeLeft(elapsed time.Duration) time.Duration {
	if r.MaxElapsedTime == NoLimit {
		return math.MaxInt64
	}
	return r.MaxElapsedTime - elapsed
}
