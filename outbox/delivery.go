package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// maxErrorLen is the maximum number of bytes of an error that are kept with an attempt.
const maxErrorLen = 2000

// An attempt is the outcome of a delivery.
type attempt struct {
	message store.Pending
	result  store.Result
	err     error
	// abandoned is true if the delivery failed because this host had to stop. Then it does not
	// count as an attempt.
	abandoned bool
	// settled is called when the result is written. It may be nil.
	settled func()
}

// deliver passes a message to its sink. It calls done once with the result, and then calls returned
// when the sink has returned. If a sink ignores the end of its context, it may return long after
// done was called.
func (r *Relay) deliver(base context.Context, m store.Pending, done func(attempt), returned func()) {
	ctx, cancel := context.WithTimeoutCause(base, r.config.DeliverTimeout, errTimeout)
	defer cancel()
	began := time.Now()
	result := guard.Go("sink", func() error { return r.try(ctx, m) })
	err, ended := lifecycle.AwaitEnd(ctx, result, returnGrace)
	if !ended {
		err = errors.New("outbox: the sink ignores the end of its context")
	}
	done(r.attempt(m, time.Since(began), err, context.Cause(ctx), base.Err() != nil))
	if !ended {
		r.events.Log(slog.LevelError, "outbox: a sink ignores the end of its context: it keeps its place until it "+
			"returns", "topic", m.Topic, "message", ID(m.ID).String())
		r.countStuck(m.Topic, 1)
		<-result
		r.countStuck(m.Topic, -1)
	}
	returned()
}

// countStuck adds n to the number of sink calls of a topic that ignore their contexts.
func (r *Relay) countStuck(topic string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stuckIn[topic] += n; r.stuckIn[topic] == 0 {
		delete(r.stuckIn, topic)
	}
}

// try calls the sink.
func (r *Relay) try(ctx context.Context, m store.Pending) error {
	if m.Fault != "" {
		return unreadableError(m.Fault)
	}
	if r.config.killed(m) {
		return crashedError(m.Crashes)
	}
	sink := r.config.sink(m.Topic)
	if sink == nil {
		return errNoSink
	}
	return sink.Deliver(ctx, Delivery{Message: fromStored(m.Message), Seq: m.Seq, Attempt: m.Attempts + 1, Age: m.Age})
}

// An unreadableError is the error of a dead message whose row cannot be read.
type unreadableError string

func (u unreadableError) Error() string { return "outbox: its row cannot be read: " + string(u) }

// errNoSink is the error of a dead message whose topic has no sink.
var errNoSink = errors.New("outbox: no sink has this topic")

// attempt returns the outcome of a delivery. cause is the reason for which the delivery's context
// has ended. stopping is true if this host has to stop.
func (r *Relay) attempt(m store.Pending, took time.Duration, err, cause error, stopping bool) attempt {
	a := attempt{message: m, err: err, result: store.Result{ID: m.ID, Seq: m.Seq, Attempts: m.Attempts, Took: took,
		MostLate: r.config.Retry.mostLate()}}
	if err == nil {
		a.result.Outcome = store.OutcomeOK
		return a
	}
	permanent, wait, waits := marksOf(err)
	_, unreadable := err.(unreadableError)
	_, crashed := err.(crashedError)
	if stopping && !permanent && !unreadable {
		a.abandoned = true
		return a
	}
	a.result.Error = textOf(err)
	if cause == errTimeout {
		a.result.Error = textOf(fmt.Errorf("%w (%v): %s", errTimeout, r.config.DeliverTimeout, a.result.Error))
	}
	left, tried := r.config.timeLeft(m, took), m.Attempts+1-m.Budget
	switch {
	case unreadable:
		a.result.Outcome = store.OutcomeUnreadable
	case permanent, err == errNoSink:
		a.result.Outcome = store.OutcomePermanent
	case crashed, r.config.Retry.MaxAttempts > 0 && tried >= r.config.Retry.MaxAttempts, left <= 0:
		a.result.Outcome = store.OutcomeExhausted
	default:
		a.result.Outcome = store.OutcomeTransient
		if !waits {
			wait = r.config.Retry.wait(tried)
		}
		a.result.RetryIn = min(left, wait)
	}
	return a
}

// marksOf returns the marks that Permanent and RetryAfter have put on an error.
func marksOf(err error) (permanent bool, wait time.Duration, waits bool) {
	if after, ok := guard.As[*RetryAfterError](err); ok && after != nil {
		wait, waits = min(max(after.Wait, 0), maxWait), true // an error made by other code may have any Wait
	}
	return guard.Is(err, ErrPermanent), wait, waits
}

// timeLeft returns how soon a message whose attempt has failed may begin its last attempt.
func (r RelayConfig) timeLeft(m store.Pending, took time.Duration) time.Duration {
	if r.Retry.MaxElapsedTime == NoLimit {
		return math.MaxInt64
	}
	left := r.Retry.MaxElapsedTime - m.Failing - took
	// Receivers still remember a requeued message. If they had forgotten it before the Requeue,
	// Force was set.
	if m.Budget > 0 && m.Age-m.Failing < r.InboxRetention {
		left = min(left, r.InboxRetention-m.Age-took)
	}
	return left
}

// mostLate returns store.Result.MostLate. A longer delay is not caused by queueing, but by an
// outage of all relays or a step of the database's clock.
func (r Retry) mostLate() time.Duration {
	if r.MaxElapsedTime == NoLimit {
		return day
	}
	return min(day, r.MaxElapsedTime/10)
}

func (r Retry) wait(attempt int) time.Duration { return loop.Backoff(r.FirstWait, r.MaxWait, attempt) }

func textOf(err error) string { return guard.Text(err, maxErrorLen) }

// report counts and logs an attempt whose result is written, and calls hooks. counts is false if
// the database ignored the result.
func (r *Relay) report(a attempt, counts bool) {
	m, outcome := a.message, Outcome(a.result.Outcome)
	line := func(more ...any) []any {
		line := append([]any{"message", ID(m.ID).String(), "topic", m.Topic, "key", m.Key, "attempt", m.Attempts + 1,
			"took", a.result.Took}, more...)
		if a.err != nil {
			line = append(line, "err", a.err)
		}
		return line
	}
	if !counts {
		r.events.Log(slog.LevelInfo, "outbox: dropped the result of a delivery: another relay has delivered the "+
			"message", line("outcome", string(outcome))...)
		return
	}
	r.counts.ended(outcome, a.result.Took)
	r.metrics.observe(a.result.Took)
	switch outcome {
	case OutcomeOK:
		r.events.Log(slog.LevelDebug, "outbox: message delivered", line()...)
	case OutcomeTransient:
		r.events.LogSome(slog.LevelWarn, m.Topic, "outbox: a delivery failed: it will be retried", line("retry_in",
			a.result.RetryIn)...)
	default:
		more := []any{"outcome", string(outcome), "attempts", m.Attempts + 1 - m.Budget, "tried_for",
			(m.Failing + a.result.Took).Round(time.Millisecond)}
		if p := guard.Panicked(a.err); p != nil {
			more = append(more, "stack", string(p.Stack))
		}
		r.events.LogSome(slog.LevelError, m.Topic, "outbox: gave up: the message is now dead", line(more...)...)
	}
	tell(r.events, "Attempted", r.events.hooks.Attempted, a.info())
}

// info returns the AttemptInfo of an attempt for hooks.
func (a attempt) info() AttemptInfo {
	m := a.message
	return AttemptInfo{ID: ID(m.ID), Topic: m.Topic, Key: m.Key, Attempt: m.Attempts + 1,
		Outcome: Outcome(a.result.Outcome), Took: a.result.Took, Err: a.err, RetryIn: a.result.RetryIn}
}
