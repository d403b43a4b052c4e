package durable

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// A runner executes each attempt on its own goroutine: it calls the handler with the attempt's
// context and hands the result to the finisher.
type runner struct {
	worker   string
	handlers map[string]*handler
	book     *leaseBook
	finisher *finisher
	events   *events
	// base is the parent of the contexts of all runs. It has the values of Run's context, and ends
	// when draining takes too long. It is set when Run begins.
	base   context.Context
	gaveUp atomic.Bool // Run no longer waits for handlers
}

// attempt returns a new attempt of a claimed run. sent is when the claim was sent. attempt returns
// nil if this worker does not have the handler, although a database should never hand out such a
// run.
func (r *runner) attempt(row store.Run, sent instant) *attempt {
	h := r.handlers[row.Handler]
	if h == nil {
		r.events.Log(slog.LevelError, "durable: the database returned a run that was not asked for",
			"run", row.ID, "handler", row.Handler)
		return nil
	}
	a := &attempt{run: newRun(row, r.worker), row: row, handler: h, trustedFrom: sent, startedAt: time.Now()}
	ctx, cancel := context.WithCancelCause(ContextWithRun(r.base, a.run))
	a.ctx, a.cancel, a.stop = ctx, cancel, func() {}
	if limit := h.options.MaxRunTime; limit != NoLimit {
		a.ctx, a.stop = context.WithTimeoutCause(ctx, limit, ErrMaxRunTime)
	}
	a.run.valid = func() bool { return r.book.valid(a) }
	r.book.add(a)
	return a
}

// end ends the context of an attempt if it has not ended yet, and frees its resources.
func (a *attempt) end() {
	a.cancel(nil)
	a.stop()
}

// start starts a run that was claimed.
func (r *runner) start(row store.Run, sent instant, claimedAt time.Time) {
	a := r.attempt(row, sent)
	if a == nil {
		return
	}
	a.handler.counts.started(max(0, claimedAt.Sub(row.RunAt)))
	r.events.Log(slog.LevelDebug, "durable: run started", a.info().line()...)
	tell(r.events, "RunStarted", r.events.hooks.RunStarted, a.info())
	go r.carryOut(a)
}

// release gives back a claimed run that does not start. That uses up no attempt.
func (r *runner) release(row store.Run, sent instant, why error) {
	a := r.attempt(row, sent)
	if a == nil {
		return
	}
	a.end()
	r.book.markReturned(a)
	r.finisher.put(&finished{attempt: a, err: why, result: store.Result{RunKey: a.key(),
		Outcome: store.OutcomeInterrupted, State: store.StateQueued, Error: textOf(why)}})
}

// carryOut calls the handler.
func (r *runner) carryOut(a *attempt) {
	err := errGoexit
	defer func() { r.handlerReturned(a, context.Cause(a.ctx), err) }() // deferred: the handler may call runtime.Goexit
	err = a.handler.try(a.ctx, a.run)
}

// handlerReturned hands the result of an attempt to the finisher.
func (r *runner) handlerReturned(a *attempt, cause, err error) {
	took := time.Since(a.startedAt)
	a.end()
	if r.gaveUp.Load() {
		return // its lease is left to expire
	}
	result := a.handler.result(a.row, took, cause, err)
	r.book.markReturned(a)
	r.finisher.put(&finished{attempt: a, err: unmarked(err), result: result})
}

// lost is called when a lease is lost while the handler is running.
func (r *runner) lost(a *attempt) {
	a.handler.counts.lost()
	r.events.Log(slog.LevelWarn, "durable: a run has lost its lease: its context has ended, and another worker may "+
		"have it", a.info().line()...)
	tell(r.events, "LeaseLost", r.events.hooks.LeaseLost, a.info())
}

// cancel ends the context of a run that was canceled.
func (r *runner) cancel(a *attempt, by store.Cause) {
	if errors.Is(context.Cause(a.ctx), ErrCanceled) {
		return
	}
	a.cancel(&CanceledError{By: driver.Cause(by)})
	r.events.Log(slog.LevelInfo, "durable: a run was canceled", a.info().line("by", by.By, "note", by.Note)...)
}

// info returns the RunInfo of an attempt for hooks.
func (a *attempt) info() RunInfo {
	r := a.run
	return RunInfo{ID: r.ID, Handler: r.Handler, Schedule: r.Schedule, DueAt: r.DueAt, Attempt: r.Attempt,
		MaxAttempts: r.MaxAttempts, Key: r.Key, TriggeredBy: r.TriggeredBy, PayloadLen: len(r.Payload),
		Worker: r.Worker, StartedAt: a.startedAt, Valid: r.Valid()}
}
