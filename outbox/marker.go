package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/dbcalls"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// maxResults is how many results one call writes at most.
	maxResults         = 500
	emptyCheckInterval = 5 * time.Millisecond
	// lockedThreshold is for how long another session may keep rows locked until a check says so.
	lockedThreshold = 15 * time.Second
)

// A marker writes results. It makes one call at a time, with all results that are waiting: so no
// result waits for a batch to fill, and under load each call writes many. Results that cannot be
// written are kept and tried again; until then their keys are not read from the database again, in
// this term of their shard. A row that another session keeps locked, or a result that the database
// refuses, holds up no other for long.
type marker struct {
	relay *Relay
	batch *dbcalls.Batch
	news  chan struct{} // something waits

	mu      sync.Mutex // of all callers
	waiting []unwritten
	writing bool // some are being written
	locked  locked
}

// unwritten is a result that waits, and who wants to know whether it counts.
type unwritten struct {
	attempt
	written func(counts bool)
	locked  func() // called once, if its row is locked

	lockedSince time.Time // zero: its row is not locked, as far as is known
}

// locked are results whose rows another session keeps locked.
type locked struct {
	results []unwritten
	wait    time.Duration
	again   time.Time // they are written again then

	n      int // as of the latest call
	oldest unwritten
}

func newMarker(r *Relay) *marker {
	return &marker{relay: r, batch: dbcalls.NewBatch(maxResults, r.config.CallTimeout, isRefused),
		news: make(chan struct{}, 1)}
}

func (k *marker) put(a attempt, written func(counts bool), locked func()) {
	k.mu.Lock()
	k.waiting = append(k.waiting, unwritten{attempt: a, written: written, locked: locked})
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default: // it is about to look
	}
}

// take takes some of what waits: those of locked rows whose time has come, or others. If there are
// none, it returns in how long to look again; 0: when there are news.
//
// It takes one result of a message: there are two if this relay has lost its shard before it wrote
// the first, and leads it again. A database would refuse them together.
func (k *marker) take() (batch []unwritten, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := &k.waiting
	if l := &k.locked; len(l.results) > 0 {
		if wait = time.Until(l.again); wait <= 0 {
			from = &l.results
		}
	}
	taken := map[store.ID]bool{}
	var left []unwritten
	for _, u := range *from {
		if len(batch) < k.batch.Limit() && !taken[u.result.ID] {
			taken[u.result.ID] = true
			batch = append(batch, u)
		} else {
			left = append(left, u)
		}
	}
	*from = left
	k.writing = len(batch) > 0
	return batch, max(0, wait)
}

// left is how many results are not written.
func (k *marker) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.waiting) + len(k.locked.results)
}

// waitEmpty waits until everything is written but what is locked, or ctx ends.
func (k *marker) waitEmpty(ctx context.Context) {
	for sleep(ctx, emptyCheckInterval) {
		k.mu.Lock()
		done := len(k.waiting) == 0 && !k.writing
		k.mu.Unlock()
		if done {
			return
		}
	}
}

// run writes results until ctx ends, and returns how many it could not write.
func (k *marker) run(ctx context.Context) (left int) {
	wait := minCallWait
	for {
		batch, later := k.take()
		var again <-chan time.Time
		news := k.news
		switch {
		case len(batch) > 0:
			err := k.write(batch)
			if err == nil {
				wait = minCallWait
			}
			if err == nil || k.batch.Limit() < len(batch) { // fewer may be written at once
				continue
			}
			again, news = time.After(wait/2+rand.N(wait)), nil
			wait = min(2*wait, maxCallWait)
		case later > 0:
			again = time.After(later)
		}
		select {
		case <-ctx.Done():
			return k.left()
		case <-news:
		case <-again:
		}
	}
}

// write writes a batch. If that fails, the batch waits again.
func (k *marker) write(batch []unwritten) error {
	results := make([]store.Result, len(batch))
	for i, u := range batch {
		results[i] = u.result
	}
	began := time.Now()
	marked, err := call(k.relay.calls, opMark, func(ctx context.Context) (store.Marked, error) {
		return k.relay.store.Mark(ctx, k.relay.config.Name, results)
	})
	k.batch.Ended(len(batch), time.Since(began), err)
	if err != nil {
		k.putBack(batch, isRefused(err))
		return err
	}
	counts := make(map[store.ID]bool, len(marked.Counted))
	for _, id := range marked.Counted {
		counts[id] = true
	}
	kept := make(map[store.ID]bool, len(marked.Locked))
	for _, id := range marked.Locked {
		kept[id] = true
	}
	var still []unwritten
	for _, u := range batch {
		if kept[u.result.ID] {
			if u.lockedSince.IsZero() {
				u.locked() // without the mutex: whoever is told may be about to put a result
			}
			still = append(still, u)
			continue
		}
		k.relay.told(u.attempt, counts[u.result.ID])
		u.written(counts[u.result.ID])
	}
	k.keep(still)
	return nil
}

// putBack has results wait again: before all others, or behind them if the database refuses one of
// them, so that it does not come first each time.
func (k *marker) putBack(batch []unwritten, refused bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if refused {
		k.waiting = append(k.waiting, batch...)
	} else {
		k.waiting = append(batch, k.waiting...)
	}
}

// keep keeps results whose rows are locked, after each batch.
func (k *marker) keep(results []unwritten) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, now := &k.locked, time.Now()
	for _, u := range results {
		if u.lockedSince.IsZero() {
			u.lockedSince = now
		}
		l.results = append(l.results, u)
	}
	switch {
	case len(l.results) == 0:
		*l = locked{}
		return
	case !now.Before(l.again):
		l.wait = min(max(minCallWait, 2*l.wait), maxCallWait)
		l.again = now.Add(l.wait/2 + rand.N(l.wait))
	}
	l.n, l.oldest = len(l.results), l.results[0]
	for _, u := range l.results {
		if u.lockedSince.Before(l.oldest.lockedSince) {
			l.oldest = u
		}
	}
}

// unlocked returns an error if another session has kept rows locked for long.
func (k *marker) unlocked() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	took := time.Since(k.locked.oldest.lockedSince)
	if k.locked.n == 0 || took < lockedThreshold {
		return nil
	}
	m := k.locked.oldest.message
	return fmt.Errorf("another session of the database keeps the rows of %d delivered messages locked, that of "+
		"message %v (topic %q) for %v: end its transaction, or the next relay delivers them again", k.locked.n,
		ID(m.ID), m.Topic, took.Round(time.Second))
}
