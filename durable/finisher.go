package durable

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
)

const (
	// maxResults is the maximum number of results that one call writes.
	maxResults = 500
	// lockedFor is how long a row must be locked before the lock is logged.
	lockedFor = 2 * time.Second
)

var errRowLocked = errors.New("another session has locked their rows")

// A finished is an attempt that has ended here, but whose result is not in the database yet.
type finished struct {
	attempt  *attempt
	result   store.Result
	err      error // returned by the handler
	reported bool  // its locked row was logged; used only by the finisher's goroutine
}

// A finisher writes results. It makes one call at a time, with all waiting results. So a single
// result is written immediately, and under load each call writes many. If a call fails, the
// finisher tries all its results again. If the row of a result is locked, the finisher tries that
// result again later without delaying the others.
type finisher struct {
	worker   string
	store    store.Worker
	database *database
	book     *leaseBook
	events   *events
	batch    *answers.Batch
	wake     chan struct{} // signals that a result waits

	mu      sync.Mutex // used by all callers
	waiting []*finished
}

func (f *finisher) put(r *finished) {
	f.putBack([]*finished{r})
	select {
	case f.wake <- struct{}{}:
	default: // a signal is pending
	}
}

func (f *finisher) putBack(batch []*finished) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, batch...)
}

// take removes and returns up to n waiting results.
func (f *finisher) take(n int) []*finished {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, len(f.waiting))
	batch := f.waiting[:n:n]
	f.waiting = f.waiting[n:]
	return batch
}

// run writes results until ctx ends.
func (f *finisher) run(ctx context.Context) {
	wait := lifecycle.MinWait
	for {
		limit := f.batch.Limit()
		batch := f.take(limit)
		wake := f.wake
		var again <-chan time.Time
		if len(batch) > 0 {
			left, err := f.write(batch)
			f.putBack(left)
			switch {
			case len(left) == 0:
				wait = lifecycle.MinWait
				continue
			case err != nil:
				wake = nil // a new result would fail as well
			case len(batch) == limit && len(left) < len(batch):
				continue // there may be results that it has not tried yet
			}
			again = time.After(wait/2 + rand.N(wait))
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-again:
			wait = min(2*wait, lifecycle.MaxWait)
		}
	}
}

// write writes a batch and returns the remaining results: all of them if the call fails, otherwise
// those whose rows are locked.
func (f *finisher) write(batch []*finished) (left []*finished, err error) {
	results := make([]store.Result, len(batch))
	for i, r := range batch {
		results[i] = r.result
	}
	began := time.Now()
	done, err := call(f.database, opFinish, func(ctx context.Context) (store.Finished, error) {
		return f.store.Finish(ctx, f.worker, results)
	})
	f.batch.Wrote(len(batch), time.Since(began), err)
	if err != nil {
		return batch, err
	}
	counts, locked := setOf(done.Counted), setOf(done.Locked)
	var attempts []*attempt
	for _, r := range batch {
		if locked[r.result.RunKey] {
			f.tellLocked(r)
			left = append(left, r)
			continue
		}
		attempts = append(attempts, r.attempt)
		f.written(r, counts[r.result.RunKey])
	}
	f.book.remove(attempts)
	return left, nil
}

func setOf(keys []store.RunKey) map[store.RunKey]bool {
	set := make(map[store.RunKey]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set
}

// tellLocked logs, once per result, that its row has been locked for lockedFor.
func (f *finisher) tellLocked(r *finished) {
	if r.reported || time.Since(r.attempt.startedAt)-r.result.Took < lockedFor {
		return
	}
	r.reported = true
	f.events.Log(slog.LevelWarn, "durable: the result of a run waits, and the run keeps its place: another session "+
		"has locked its row", r.attempt.info().line()...)
}

// written counts and logs the end of an attempt, and calls hooks. counts is false if the database
// ignored the result.
func (f *finisher) written(r *finished, counts bool) {
	a, info := r.attempt, r.attempt.info()
	outcome := Outcome(r.result.Outcome)
	line := func(more ...any) []any {
		line := info.line("outcome", string(outcome), "took", r.result.Took)
		if r.err != nil {
			line = append(line, "err", r.err)
		}
		return append(line, more...)
	}
	a.handler.counts.ended(outcome, counts, r.result.Took)
	switch {
	case !counts:
		f.events.Log(slog.LevelInfo, "durable: dropped the result of a run: its lease had expired, and another "+
			"worker took the run", line()...)
		return
	case outcome == OutcomeInterrupted:
		f.events.Log(slog.LevelInfo, "durable: a run was given back", line()...)
		return
	case r.result.State == store.StateQueued:
		f.events.LogSome(slog.LevelWarn, info.Handler, "durable: an attempt failed: the run will be retried",
			line("retry_in", r.result.RetryIn)...)
		tell(f.events, "AttemptFailed", f.events.hooks.AttemptFailed, AttemptInfo{RunInfo: info, Outcome: outcome,
			Took: r.result.Took, Err: r.err, RetryIn: r.result.RetryIn})
		return
	case r.result.State == store.StateDead:
		more := []any{"attempts", a.row.Attempt - a.row.Uncounted, "tried_for",
			failingFor(a.row, r.result.Took).Round(time.Millisecond)}
		if p := guard.Panicked(r.err); p != nil {
			more = append(more, "stack", string(p.Stack))
		}
		f.events.LogSome(slog.LevelError, info.Handler, "durable: gave up: the run is now a dead letter",
			line(more...)...)
	default:
		f.events.Log(slog.LevelDebug, "durable: run ended", line()...)
	}
	tell(f.events, "RunEnded", f.events.hooks.RunEnded, RunResult{RunInfo: info, State: State(r.result.State),
		Outcome: outcome, Took: r.result.Took, Err: r.err})
}
