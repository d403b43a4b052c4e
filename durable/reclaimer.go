package durable

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/loop"
)

// maxReclaimed is the maximum number of runs that one call reclaims.
const maxReclaimed = 100

// A reclaimer takes runs whose leases have expired from their workers, even if this worker does not
// have their handlers.
type reclaimer struct {
	*loop.Loop
	store     store.Worker
	database  *database
	events    *events
	queued    func() // called when runs were queued again
	crashes   int    // Config.MaxCrashes; 0: any number
	reclaimed atomic.Uint64
}

// reclaim is a step of the loop.
func (r *reclaimer) reclaim() time.Duration {
	list, err := call(r.database, opReclaim, func(ctx context.Context) ([]store.Reclaimed, error) {
		return r.store.Reclaim(ctx, maxReclaimed, r.crashes)
	})
	if err != nil {
		return afterFailure()
	}
	queued := false
	for _, run := range list {
		r.tell(run)
		queued = queued || !run.Dead && !run.Canceled
	}
	r.reclaimed.Add(uint64(len(list)))
	if queued {
		r.queued()
	}
	if len(list) == maxReclaimed {
		return 0
	}
	return loop.Never
}

func (r *reclaimer) tell(run store.Reclaimed) {
	line := []any{"run", run.ID, "handler", run.Handler, "attempt", run.Attempt, "worker", run.Worker,
		"leases_lost", run.Crashes}
	info := RunInfo{ID: run.ID, Handler: run.Handler, Schedule: run.Schedule, Attempt: run.Attempt,
		MaxAttempts: run.MaxAttempts, Worker: run.Worker}
	if !run.Dead && !run.Canceled {
		r.events.Log(slog.LevelWarn, "durable: a run was reclaimed: the lease of its worker had expired", line...)
		tell(r.events, "RunReclaimed", r.events.hooks.RunReclaimed, info)
		return
	}
	state := StateDead
	if run.Canceled {
		state = StateCanceled
	}
	r.events.Log(slog.LevelError, "durable: a run ended: the lease of its worker had expired",
		append(line, "state", string(state))...)
	tell(r.events, "RunEnded", r.events.hooks.RunEnded, RunResult{RunInfo: info, State: state,
		Outcome: OutcomeLeaseLost, Err: ErrLeaseLost})
}
