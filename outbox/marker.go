package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// maxResults is the maximum number of results that one call writes.
	maxResults         = 500
	emptyCheckInterval = 5 * time.Millisecond
	// lockedThreshold is how long results may stay unwritten before a check fails.
	lockedThreshold = 15 * time.Second
	// maxAlone is how many results are tried in separate calls before the relay waits.
	maxAlone = 8
)

// A marker writes results. It makes one call at a time, with all waiting results. So no result
// waits for a batch to fill, and under load each call writes many. Results that cannot be written
// are kept and tried again. Until they are written, the shard reads no messages of their keys in
// this term. A row that another session keeps locked, or a result that the database refuses, does
// not delay other results for long.
//
// If the database refuses a result, it may return any error. So a result counts as refused if a
// call with only this result has failed and the next call, with only another result, has succeeded.
// While no call succeeds, all results wait in order. If a later result of a key were written first
// and this relay died, the next relay would deliver the earlier message after the later one.
type marker struct {
	relay *Relay
	batch *answers.Batch
	wake  chan struct{} // signals that a result waits

	mu      sync.Mutex // used by all callers
	waiting []*unwritten
	writing bool // a call is writing results
	// failed has the results whose separate calls have failed in this round. They are also in
	// waiting. A round begins when a call has succeeded, or after a wait.
	failed      []*unwritten
	locked      kept
	refused     kept      // includes the later results of their keys, in order
	refusedLast bool      // the latest call was for a refused result
	failure     error     // error of the latest call for waiting results; nil if a call has succeeded since
	since       time.Time // when failure was first set
}

// unwritten is a result that is not in the database yet, with its callbacks.
type unwritten struct {
	attempt
	written func(counts bool)
	kept    func() // called once when the result is kept

	told      bool      // kept was called
	keptSince time.Time // zero if not kept
	refused   error     // error of the latest call with only this result
	alone     int       // number of such calls that have failed
	retried   bool      // the result was refused again after others had been written
}

// kept has results that cannot be written although others can. They are tried again after a wait,
// so that they do not delay other results.
type kept struct {
	results []*unwritten
	wait    time.Duration
	again   time.Time // when to try them again

	n      int // len(results) after the latest call
	oldest *unwritten
}

func newMarker(r *Relay) *marker {
	return &marker{relay: r, batch: answers.NewBatch(maxResults, r.config.CallTimeout), wake: make(chan struct{}, 1)}
}

func (m *marker) put(a attempt, written func(counts bool), kept func()) {
	m.mu.Lock()
	m.waiting = append(m.waiting, &unwritten{attempt: a, written: written, kept: kept})
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// left returns the number of results that are not written.
func (m *marker) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting) + len(m.locked.results) + len(m.refused.results)
}

// waitEmpty waits until all results that can be written are written, or until ctx ends.
func (m *marker) waitEmpty(ctx context.Context) {
	untried := func(u *unwritten) bool { return !u.retried && u.refused != errBehind }
	for lifecycle.Sleep(ctx, emptyCheckInterval) {
		m.mu.Lock()
		done := len(m.waiting) == 0 && !m.writing && !slices.ContainsFunc(m.refused.results, untried)
		m.mu.Unlock()
		if done {
			return
		}
	}
}

// run writes results until ctx ends and returns how many it could not write.
func (m *marker) run(ctx context.Context) (left int) {
	wait := lifecycle.MinWait
	var round time.Time // when the next round begins; zero if no call with a single result has failed
	for {
		batch, from, later, moved := m.take()
		m.tell(moved)
		wake := m.wake
		switch {
		case len(batch) > 0:
			err := m.write(batch, from)
			if err == nil {
				wait, round = lifecycle.MinWait, time.Time{}
			}
			// Retry immediately: a smaller batch, or other results, may succeed.
			if err == nil || from != &m.waiting || len(batch) == 1 || m.batch.Limit() < len(batch) {
				continue
			}
			later, wake = wait/2+rand.N(wait), nil
			wait = min(2*wait, lifecycle.MaxWait)
		case m.anyFailed():
			if round.IsZero() {
				round = time.Now().Add(wait/2 + rand.N(wait))
				wait = min(2*wait, lifecycle.MaxWait)
			}
			if left := max(time.Nanosecond, time.Until(round)); later == 0 || left < later {
				later = left
			}
		}
		var again <-chan time.Time
		if later > 0 {
			again = time.After(later)
		}
		select {
		case <-ctx.Done():
			return m.left()
		case <-wake:
		case <-again:
		}
		if !round.IsZero() && !time.Now().Before(round) {
			round = time.Time{}
			m.nextRound()
		}
	}
}

func (m *marker) anyFailed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.failed) > 0
}

// take takes a batch of kept results whose time has come. If there are none, it takes waiting
// results. later is how soon kept results are tried again, or 0 if no others are kept.
//
// It takes at most one result for each row, because some databases refuse two in one call, and
// others may confuse them. A row can have two results if this relay lost its shard before it wrote
// the first result and leads the shard again, or if the database was restored from a copy and has
// reused the number of the row for another message. moved has the results that became kept in this
// call.
func (m *marker) take() (batch []*unwritten, from *[]*unwritten, later time.Duration, moved []*unwritten) {
	m.mu.Lock()
	defer m.mu.Unlock()
	moved = m.followers()
	from, limit := &m.waiting, m.batch.Limit()
	for _, list := range []*kept{&m.refused, &m.locked} {
		switch wait := time.Until(list.again); {
		case len(list.results) == 0:
		case wait <= 0:
			from = &list.results
		case later == 0 || wait < later:
			later = wait
		}
	}
	if from == &m.refused.results && m.refusedLast && len(m.waiting) > 0 && len(m.failed) == 0 {
		from = &m.waiting // refused and waiting results take turns
	}
	m.refusedLast = from == &m.refused.results
	switch {
	case m.refusedLast:
		limit = 1
	case from == &m.waiting && len(m.failed) > 0:
		batch = m.another()
		limit = 0
	}
	taken := map[int64]bool{}
	var left []*unwritten
	for _, u := range *from {
		switch {
		case slices.Contains(batch, u):
		case len(batch) < limit && !taken[u.result.Seq]:
			taken[u.result.Seq] = true
			batch = append(batch, u)
		default:
			left = append(left, u)
		}
	}
	*from = left
	m.writing = len(batch) > 0
	return batch, from, later, moved
}

// another considers the waiting results that are the first of their key and have not failed in this
// round, and returns the one with the fewest separate calls. It returns none if maxAlone results
// have failed. The caller holds mu.
func (m *marker) another() (least []*unwritten) {
	if len(m.failed) == maxAlone {
		return nil
	}
	keys := map[string]bool{}
	for _, u := range m.waiting {
		key := u.message.Key
		first := key == "" || !keys[key]
		keys[key] = true
		if first && !slices.Contains(m.failed, u) && (least == nil || u.alone < least[0].alone) {
			least = []*unwritten{u}
		}
	}
	return least
}

// nextRound begins a round, in which the failed results can be tried again.
func (m *marker) nextRound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = nil
}

// write writes a batch. If the call fails, it puts the batch back.
func (m *marker) write(batch []*unwritten, from *[]*unwritten) error {
	results := make([]store.Result, len(batch))
	for i, u := range batch {
		results[i] = u.result
	}
	began := time.Now()
	marked, err := call(m.relay.calls, opMark, func(ctx context.Context) (store.Marked, error) {
		return m.relay.store.Mark(ctx, m.relay.config.Name, results)
	})
	m.batch.Wrote(len(batch), time.Since(began), err)
	if err != nil {
		m.putBack(batch, from, err)
		return err
	}
	counts, locked := setOf(marked.Counted), setOf(marked.Locked)
	var still []*unwritten
	for _, u := range batch {
		if locked[u.result.ID] {
			still = append(still, u)
			continue
		}
		m.relay.report(u.attempt, counts[u.result.ID])
		u.written(counts[u.result.ID])
	}
	m.mu.Lock()
	for _, u := range still {
		u.refused = nil
	}
	// A call has succeeded, so try results separately if their batch of locked rows has failed.
	apart := slices.DeleteFunc(slices.Clone(m.locked.results), func(u *unwritten) bool { return u.refused == nil })
	m.locked.results = without(m.locked.results, apart)
	refused := append(m.failed, apart...)
	m.failed, m.failure = nil, nil
	m.waiting = without(m.waiting, refused)
	m.refused.keep(refused, len(batch) > len(still) && from == &m.refused.results, false)
	m.locked.keep(still, len(still) == 0 && from == &m.locked.results, from == &m.locked.results)
	m.mu.Unlock()
	m.tell(still)
	m.tell(refused)
	return nil
}

func setOf(ids []store.ID) map[store.ID]bool {
	set := make(map[store.ID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func without(list, some []*unwritten) []*unwritten {
	if len(some) == 0 {
		return list
	}
	return slices.DeleteFunc(list, func(u *unwritten) bool { return slices.Contains(some, u) })
}

// tell calls kept for newly kept results. The caller must not hold mu, because kept waits for the
// shard, which may be in put.
func (m *marker) tell(results []*unwritten) {
	for _, u := range results {
		if !u.told {
			u.told = true
			u.kept()
		}
	}
}

// putBack puts back the results of a failed call.
func (m *marker) putBack(batch []*unwritten, from *[]*unwritten, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	alone := len(batch) == 1
	if alone {
		batch[0].refused = err
		batch[0].alone++
	}
	switch {
	case from == &m.waiting:
		if m.failure == nil {
			m.since = time.Now()
		}
		m.failure = err
		*from = append(batch, *from...)
		if alone {
			m.failed = append(m.failed, batch[0])
		}
	case from == &m.locked.results: // one of them may now be refused
		for _, u := range batch {
			u.refused = err
		}
		m.locked.keep(batch, false, true)
	default:
		batch[0].retried = true
		key := batch[0].message.Key
		later := slices.DeleteFunc(slices.Clone(*from), func(u *unwritten) bool {
			return key == "" || u.message.Key != key
		})
		*from = without(*from, later)
		m.refused.keep(append(batch, later...), false, true)
	}
}

// followers moves a waiting result to the refused results if an earlier result of its key is
// refused. It returns the moved results. The caller holds mu.
func (m *marker) followers() (moved []*unwritten) {
	if len(m.refused.results) == 0 {
		return nil
	}
	keys := map[string]bool{}
	for _, u := range m.refused.results {
		keys[u.message.Key] = true
	}
	for _, u := range m.waiting {
		if u.message.Key != "" && keys[u.message.Key] {
			u.refused = errBehind
			moved = append(moved, u)
		}
	}
	m.waiting, m.failed = without(m.waiting, moved), without(m.failed, moved)
	m.refused.keep(moved, false, false)
	return moved
}

var errBehind = errors.New("an earlier result of its key is refused")

// keep adds results to the list and sets when to try the list again. written is true if the latest
// call took its results from the list and wrote all of them; then the others are tried immediately.
// tried is true if the call took them from the list and did not write all of them.
func (k *kept) keep(results []*unwritten, written, tried bool) {
	now := time.Now()
	for _, u := range results {
		if u.keptSince.IsZero() {
			u.keptSince = now
		}
		k.results = append(k.results, u)
	}
	switch {
	case len(k.results) == 0:
		*k = kept{}
		return
	case written:
		k.wait, k.again = 0, now
	case tried || k.again.IsZero(): // otherwise newly kept results would postpone the time forever
		k.wait = min(max(lifecycle.MinWait, 2*k.wait), lifecycle.MaxWait)
		k.again = now.Add(k.wait/2 + rand.N(k.wait))
	}
	k.n, k.oldest = len(k.results), slices.MinFunc(k.results, func(a, b *unwritten) int {
		return a.keptSince.Compare(b.keptSince)
	})
}

// unlocked returns an error if results have been unwritten for lockedThreshold.
func (m *marker) unlocked() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none error
	if took := time.Since(m.since); m.failure != nil && took >= lockedThreshold {
		none = fmt.Errorf("the results of %d delivered messages wait, and none could be written for %v: %w",
			len(m.waiting), took.Round(time.Second), m.failure)
	}
	return errors.Join(none,
		m.locked.forLong("another session of the database keeps the rows of %d delivered messages locked, the row of "+
			"message %v (topic %q) for %v: end its transaction, or the next relay delivers them again"),
		m.refused.forLong("the database refuses the results of %d delivered messages, the result of message %v "+
			"(topic %q) for %v: fix that, or the next relay delivers them again"))
}

func (k *kept) forLong(text string) error {
	if k.n == 0 {
		return nil
	}
	m, took := k.oldest.message, time.Since(k.oldest.keptSince)
	if took < lockedThreshold {
		return nil
	}
	err := fmt.Errorf(text, k.n, ID(m.ID), m.Topic, took.Round(time.Second))
	if k.oldest.refused != nil {
		err = fmt.Errorf("%w: %w", err, k.oldest.refused)
	}
	return err
}
