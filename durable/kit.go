package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/durable/internal/kit"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// init gives package durabletest access to internals that users do not need.
func init() {
	kit.NewStore = func(s store.Store) any { return &Store{store: s} }
	kit.StoreOf = func(of any) (store.Store, error) {
		s, _ := of.(*Store)
		if w, ok := of.(*Worker); ok {
			if w == nil {
				return nil, errors.New("the worker is nil: make one with durable.NewWorker")
			}
			s = w.store
		}
		if err := s.ready(context.Background()); err != nil {
			return nil, err
		}
		return s.store, nil
	}
	kit.Call = func(ctx context.Context, worker, run any) (any, time.Duration, error) {
		return worker.(*Worker).callOnce(ctx, run.(Run))
	}
}

// callOnce calls a handler as a runner does, on this goroutine, and writes nothing. Zero fields of
// the run get the values of a first attempt.
func (w *Worker) callOnce(ctx context.Context, run Run) (result RunResult, retryIn time.Duration, err error) {
	if err := w.Check(); err != nil {
		return result, 0, err
	}
	w.mu.Lock()
	h, known := w.handlers[run.Handler], slices.Sorted(maps.Keys(w.handlers))
	w.mu.Unlock()
	if h == nil {
		return result, 0, fmt.Errorf("the worker has no handler %.60q, but %s: set Run.Handler", run.Handler,
			strings.Join(known, ", "))
	}
	run.ID, run.Attempt = cmp.Or(run.ID, 1), cmp.Or(run.Attempt, 1)
	run.MaxAttempts = cmp.Or(run.MaxAttempts, h.options.Retry.MaxAttempts)
	run.Key, run.Worker = cmp.Or(run.Key, fmt.Sprintf("run:%d", run.ID)), cmp.Or(run.Worker, w.config.Name)
	if run.EnqueuedAt.IsZero() {
		run.EnqueuedAt = time.Now().UTC()
	}
	row := store.Run{RunKey: store.RunKey{ID: run.ID, Attempt: run.Attempt}, Handler: run.Handler,
		MaxAttempts: run.MaxAttempts}
	a := &attempt{run: &run, row: row, handler: h, startedAt: time.Now()}
	ctx = ContextWithRun(ctx, &run)
	if limit := h.options.MaxRunTime; limit != NoLimit {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, ErrMaxRunTime)
		defer stop()
	}
	err = h.try(ctx, &run)
	r := h.result(row, time.Since(a.startedAt), context.Cause(ctx), err)
	return RunResult{RunInfo: a.info(), State: State(r.State), Outcome: Outcome(r.Outcome), Took: r.Took,
		Err: unmarked(err)}, r.RetryIn, nil
}
