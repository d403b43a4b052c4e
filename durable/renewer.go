package durable

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/loop"
)

// A renewer extends the leases of all attempts in one statement, every third of a lease, or sooner
// after a failure. If there are no attempts, it calls the database only to find out whether
// renewals work again.
type renewer struct {
	*loop.Loop
	worker   string
	store    store.Worker
	database *database
	book     *leaseBook
	runner   *runner
	events   *events
	renewals atomic.Uint64         // how many leases were extended
	reported map[store.RunKey]bool // logged because their handlers ignore their contexts; used by the loop only
}

// renew is a step of the loop.
func (r *renewer) renew() time.Duration {
	keys, ignoring := r.book.toRenew()
	r.tell(ignoring)
	if len(keys) == 0 {
		return loop.Never
	}
	sent := now()
	answer, err := call(r.database, opRenew, func(ctx context.Context) ([]store.Renewed, error) {
		return r.store.Renew(ctx, r.worker, keys, r.book.ttl)
	})
	if err != nil {
		return loop.Jittered(r.book.ttl/10, 0.3)
	}
	r.renewals.Add(uint64(len(answer)))
	r.book.renewed(sent, keys, answer)
	for _, n := range answer {
		if a := r.book.find(n.RunKey); n.Canceled && a != nil {
			r.runner.cancel(a, n.By)
		}
	}
	return loop.Never
}

// tell logs each run whose handler ignores its context, once per run.
func (r *renewer) tell(ignoring []*attempt) {
	told := map[store.RunKey]bool{}
	for _, a := range ignoring {
		told[a.key()] = true
		if !r.reported[a.key()] {
			r.events.Log(slog.LevelError, "durable: a handler ignores the end of its context: its lease is no "+
				"longer renewed, and it keeps its place on this worker until it returns",
				a.info().line("cause", context.Cause(a.ctx))...)
		}
	}
	r.reported = told
}
