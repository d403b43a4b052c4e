package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

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
// written are kept and tried again; until then their keys are not read from the database again. A
// row that another session keeps locked holds up its own result, and no other.
type marker struct {
	relay *Relay
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

func (k *marker) put(a attempt, written func(counts bool), locked func()) {
	k.mu.Lock()
	k.waiting = append(k.waiting, unwritten{attempt: a, written: written, locked: locked})
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default: // it is about to look
	}
}

// take takes up to maxResults of what waits: those of locked rows whose time has come, or others.
// If there are none, it returns in how long to look again; 0: when there are news.
func (k *marker) take() (batch []unwritten, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := &k.waiting
	if l := &k.locked; len(l.results) > 0 {
		if wait = time.Until(l.again); wait <= 0 {
			from = &l.results
		}
	}
	n := min(maxResults, len(*from))
	batch = (*from)[:n:n]
	*from = (*from)[n:]
	k.writing = n > 0
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
	var batch []unwritten
	wait := minCallWait
	for {
		var again <-chan time.Time
		news := k.news
		if len(batch) == 0 {
			var later time.Duration
			if batch, later = k.take(); later > 0 {
				again = time.After(later)
			}
		}
		if len(batch) > 0 {
			if k.write(batch) {
				batch, wait = nil, minCallWait
				continue
			}
			again, news = time.After(wait/2+rand.N(wait)), nil
			wait = min(2*wait, maxCallWait)
		}
		select {
		case <-ctx.Done():
			return len(batch) + k.left()
		case <-news:
		case <-again:
		}
	}
}

// write writes a batch, and reports whether that went well.
func (k *marker) write(batch []unwritten) bool {
	results := make([]store.Result, len(batch))
	for i, u := range batch {
		results[i] = u.result
	}
	marked, err := call(k.relay.calls, opMark, func(ctx context.Context) (store.Marked, error) {
		return k.relay.store.Mark(ctx, k.relay.config.Name, results)
	})
	if err != nil {
		return false
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
	return true
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
