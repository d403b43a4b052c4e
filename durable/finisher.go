package durable

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

const (
	// mostResults is how many results one call writes at most.
	mostResults = 500
	// The waits between calls that fail.
	firstFinishWait = 100 * time.Millisecond
	longestFinish   = 2 * time.Second
)

// A finished is an attempt that has ended here, and of which the database does not have the result
// yet.
type finished struct {
	attempt *attempt
	result  store.Result
	err     error // what the handler has returned
}

// A finisher writes results: one call at a time, with all that wait. So it waits for nobody, and
// under load each call writes many. What cannot be written is kept and tried again.
type finisher struct {
	worker   string
	store    store.Worker
	database *database
	book     *book
	events   *events
	news     chan struct{} // something waits

	mu      sync.Mutex // of all callers
	waiting []*finished
}

func (f *finisher) put(r *finished) {
	f.mu.Lock()
	f.waiting = append(f.waiting, r)
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default: // it is about to look
	}
}

// take takes what waits, up to mostResults.
func (f *finisher) take() []*finished {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(mostResults, len(f.waiting))
	batch := f.waiting[:n:n]
	f.waiting = f.waiting[n:]
	return batch
}

// run writes results until ctx ends.
func (f *finisher) run(ctx context.Context) {
	var batch []*finished
	wait := firstFinishWait
	for {
		if len(batch) == 0 {
			batch = f.take()
		}
		var again <-chan time.Time
		news := f.news
		if len(batch) > 0 {
			if f.write(ctx, batch) {
				batch, wait = nil, firstFinishWait
				continue
			}
			again, news = time.After(wait/2+rand.N(wait)), nil
			wait = min(2*wait, longestFinish)
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-again:
		}
	}
}

// write writes a batch, and reports whether that went well.
func (f *finisher) write(ctx context.Context, batch []*finished) bool {
	results := make([]store.Result, len(batch))
	for i, r := range batch {
		results[i] = r.result
	}
	counted, err := call(f.database, opFinish, func(ctx context.Context) ([]store.RunKey, error) {
		return f.store.Finish(ctx, f.worker, results)
	})
	if err != nil {
		return false
	}
	counts := make(map[store.RunKey]bool, len(counted))
	for _, key := range counted {
		counts[key] = true
	}
	attempts := make([]*attempt, len(batch))
	for i, r := range batch {
		attempts[i] = r.attempt
		f.written(r, counts[r.result.RunKey])
	}
	f.book.remove(attempts)
	return true
}

// written tells what has become of an attempt.
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
		f.events.log(slog.LevelInfo, "durable: the result of a run does not count, because another worker has "+
			"reclaimed it", line()...)
		return
	case outcome == OutcomeInterrupted:
		f.events.log(slog.LevelInfo, "durable: a run was given back", line()...)
		return
	case r.result.State == store.StateQueued:
		f.events.log(slog.LevelDebug, "durable: an attempt has failed, another follows",
			line("retry_in", r.result.RetryIn)...)
		tell(f.events, "AttemptFailed", f.events.hooks.AttemptFailed, AttemptInfo{RunInfo: info, Outcome: outcome,
			Took: r.result.Took, Err: r.err, RetryIn: r.result.RetryIn})
		return
	case r.result.State == store.StateDead:
		if p, ok := r.err.(*PanicError); ok {
			f.events.log(slog.LevelError, "durable: a run is a dead letter", line("stack", string(p.Stack))...)
		} else {
			f.events.log(slog.LevelError, "durable: a run is a dead letter", line()...)
		}
	default:
		f.events.log(slog.LevelDebug, "durable: run ended", line()...)
	}
	tell(f.events, "RunEnded", f.events.hooks.RunEnded, RunEndInfo{RunInfo: info, State: State(r.result.State),
		Outcome: outcome, Took: r.result.Took, Err: r.err})
}
