package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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
// refuses, holds up its own result, and no other for long.
type marker struct {
	relay *Relay
	batch *dbcalls.Batch
	news  chan struct{} // something waits

	mu      sync.Mutex // of all callers
	waiting []*unwritten
	writing bool // some are being written
	kept    kept
}

// unwritten is a result that waits, and who wants to know whether it counts.
type unwritten struct {
	attempt
	written func(counts bool)
	locked  func() // called once, if its row is locked

	told      bool      // locked was called
	keptSince time.Time // zero: it is not kept
	refused   error     // of the call that had only this one; nil: its row is locked
}

// kept are results that the latest call with them could not write although it was answered for
// others: their rows are locked, or the database has refused them alone. They are tried again after
// a while, so that others do not wait for them.
type kept struct {
	results []*unwritten
	wait    time.Duration
	again   time.Time // they are tried again then

	n      int // as of the latest call
	oldest *unwritten
}

func newMarker(r *Relay) *marker {
	return &marker{relay: r, batch: dbcalls.NewBatch(maxResults, r.config.CallTimeout), news: make(chan struct{}, 1)}
}

func (k *marker) put(a attempt, written func(counts bool), locked func()) {
	k.mu.Lock()
	k.waiting = append(k.waiting, &unwritten{attempt: a, written: written, locked: locked})
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default: // it is about to look
	}
}

// take takes some of what waits: those that are kept and whose time has come, or others. If there
// are none, it returns in how long to look again; 0: when there are news.
//
// It takes one result of a row. There are two if this relay has lost its shard before it wrote the
// first, and leads it again; or if the database was put back to a copy, and has given the number of
// a row to another message. Some databases refuse two together, and others may take one for the
// other.
func (k *marker) take() (batch []*unwritten, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := &k.waiting
	if len(k.kept.results) > 0 {
		if wait = time.Until(k.kept.again); wait <= 0 {
			from = &k.kept.results
		}
	}
	taken := map[int64]bool{}
	var left []*unwritten
	for _, u := range *from {
		// One that was refused is tried alone: others would be refused with it.
		alone := len(batch) > 0 && (u.refused != nil || batch[0].refused != nil)
		if len(batch) == k.batch.Limit() || taken[u.result.Seq] || alone {
			left = append(left, u)
			continue
		}
		taken[u.result.Seq] = true
		batch = append(batch, u)
	}
	*from = left
	k.writing = len(batch) > 0
	return batch, max(0, wait)
}

// left is how many results are not written.
func (k *marker) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.waiting) + len(k.kept.results)
}

// waitEmpty waits until everything is written but what is kept, or ctx ends.
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
			retried := !batch[0].keptSince.IsZero()
			err := k.write(batch)
			if err == nil {
				wait = minCallWait
			}
			if err == nil || retried || k.batch.Limit() < len(batch) { // others, or fewer, may be written at once
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
func (k *marker) write(batch []*unwritten) error {
	results := make([]store.Result, len(batch))
	for i, u := range batch {
		results[i] = u.result
	}
	began := time.Now()
	marked, err := call(k.relay.calls, opMark, func(ctx context.Context) (store.Marked, error) {
		return k.relay.store.Mark(ctx, k.relay.config.Name, results)
	})
	k.batch.Wrote(len(batch), time.Since(began), err)
	if err != nil {
		k.putBack(batch, err)
		return err
	}
	counts := setOf(marked.Counted)
	locked := setOf(marked.Locked)
	retried := !batch[0].keptSince.IsZero()
	var still []*unwritten
	for _, u := range batch {
		if locked[u.result.ID] {
			if u.refused = nil; !u.told {
				u.told = true
				u.locked() // without the mutex: whoever is told may be about to put a result
			}
			still = append(still, u)
			continue
		}
		k.relay.told(u.attempt, counts[u.result.ID])
		u.written(counts[u.result.ID])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keep(still, retried); retried && len(still) == 0 { // the others may be written, too
		k.kept.wait, k.kept.again = 0, time.Now()
	}
	return nil
}

func setOf(ids []store.ID) map[store.ID]bool {
	set := make(map[store.ID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// putBack has the results of a call that failed wait again, before all others. One that was alone
// is kept instead, behind all others, and with it the later ones of its key: if they were written
// first, and this relay died, the next one would deliver the earlier message after the later one.
func (k *marker) putBack(batch []*unwritten, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first, from := batch[0], &k.waiting
	retried := !first.keptSince.IsZero()
	if retried {
		from = &k.kept.results
	}
	if len(batch) > 1 {
		*from = append(batch, *from...)
		k.keep(nil, retried)
		return
	}
	var left []*unwritten
	for _, u := range *from {
		if first.message.Key != "" && u.message.Key == first.message.Key {
			batch = append(batch, u)
		} else {
			left = append(left, u)
		}
	}
	*from = left
	for _, u := range batch {
		u.refused = err
	}
	k.keep(batch, retried)
}

// keep keeps results. retried: those of the latest call were kept before. The caller holds mu.
func (k *marker) keep(results []*unwritten, retried bool) {
	l, now := &k.kept, time.Now()
	for _, u := range results {
		if u.keptSince.IsZero() {
			u.keptSince = now
		}
		l.results = append(l.results, u)
	}
	if len(l.results) == 0 {
		*l = kept{}
		return
	}
	if retried || l.again.IsZero() { // else those that come meanwhile would put it off for good
		l.wait = min(max(minCallWait, 2*l.wait), maxCallWait)
		l.again = now.Add(l.wait/2 + rand.N(l.wait))
	}
	l.n, l.oldest = len(l.results), slices.MinFunc(l.results, func(a, b *unwritten) int {
		return a.keptSince.Compare(b.keptSince)
	})
}

// unlocked returns an error if results have been kept for long.
func (k *marker) unlocked() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept.n == 0 {
		return nil
	}
	oldest := k.kept.oldest
	took := time.Since(oldest.keptSince)
	if took < lockedThreshold {
		return nil
	}
	m := oldest.message
	if oldest.refused != nil {
		return fmt.Errorf("the database refuses the results of %d delivered messages, that of message %v "+
			"(topic %q) for %v: mend that, or the next relay delivers them again: %w", k.kept.n, ID(m.ID), m.Topic,
			took.Round(time.Second), oldest.refused)
	}
	return fmt.Errorf("another session of the database keeps the rows of %d delivered messages locked, that of "+
		"message %v (topic %q) for %v: end its transaction, or the next relay delivers them again", k.kept.n,
		ID(m.ID), m.Topic, took.Round(time.Second))
}
