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
	// maxResults is how many results one call writes at most.
	maxResults         = 500
	emptyCheckInterval = 5 * time.Millisecond
	// lockedThreshold is for how long another session may keep rows locked until a check says so.
	lockedThreshold = 15 * time.Second
	// maxAlone is how many results are tried, each alone, before the relay waits.
	maxAlone = 8
)

// A marker writes results. It makes one call at a time, with all results that are waiting: so no
// result waits for a batch to fill, and under load each call writes many. Results that cannot be
// written are kept and tried again; until then their keys are not read from the database again, in
// this term of their shard. A row that another session keeps locked, or a result that the database
// refuses, holds up its own result, and no other for long.
//
// If the database refuses one result, its error does not say so: it may be anything. So a result
// counts as refused if a call with it alone has failed, and the next call, with another one alone,
// has succeeded. While no call succeeds, all results wait in their order. If a later result of a
// key was written first, and this relay died, the next relay would deliver the earlier message
// after the later one.
type marker struct {
	relay *Relay
	batch *answers.Batch
	wake  chan struct{} // something waits

	mu      sync.Mutex // of all callers
	waiting []*unwritten
	writing bool // some are being written
	// failed are those that have failed alone in this round: since a call has succeeded, or after a
	// wait. They are among those that wait.
	failed      []*unwritten
	locked      kept
	refused     kept      // and the later ones of their keys, in their order
	refusedLast bool      // the latest call was for one that is refused
	failure     error     // of the latest call for those that wait; nil: a call has succeeded since
	since       time.Time // there is a failure
}

// unwritten is a result that waits, and who wants to know whether it counts.
type unwritten struct {
	attempt
	written func(counts bool)
	kept    func() // called once, if it is kept

	told      bool      // kept was called
	keptSince time.Time // zero: it is not kept
	refused   error     // of the latest call that had only this one
	alone     int       // how many of these there were
	retried   bool      // it is refused, and so it was when others had been written
}

// kept are results that cannot be written while others can. They are tried again after a while, so
// that others do not wait for them.
type kept struct {
	results []*unwritten
	wait    time.Duration
	again   time.Time // they are tried again then

	n      int // as of the latest call
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
	default: // it is about to look
	}
}

// left is how many results are not written.
func (m *marker) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting) + len(m.locked.results) + len(m.refused.results)
}

// waitEmpty waits until everything is written but what cannot be, or ctx ends.
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

// run writes results until ctx ends, and returns how many it could not write.
func (m *marker) run(ctx context.Context) (left int) {
	wait := lifecycle.MinWait
	var round time.Time // when another round begins; zero: none has failed alone
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
			// Fewer may be written, or others.
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

// take takes some of what waits: those that are kept and whose time has come, or others. If there
// are none, it returns in how long to look again; 0: something waits.
//
// It takes one result of a row. There are two if this relay has lost its shard before it wrote the
// first, and leads it again; or if the database was put back to a copy, and has given the number of
// a row to another message. Some databases refuse two together, and others may take one for the
// other. moved are those that are kept since now.
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
		from = &m.waiting // in turns
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

// another returns the one that was tried alone least often, of those that are the first of their
// key and have not failed in this round. None, if enough have. The caller holds mu.
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

// nextRound has those that have failed alone tried again.
func (m *marker) nextRound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = nil
}

// write writes a batch. If that fails, the batch waits again.
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
	// Those of a call for locked rows that has failed are tried alone now that another has not.
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

// tell calls kept of each result that is kept now. The caller does not hold mu: kept waits for the
// shard, which may be in put.
func (m *marker) tell(results []*unwritten) {
	for _, u := range results {
		if !u.told {
			u.told = true
			u.kept()
		}
	}
}

// putBack has the results of a call that failed wait again.
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
	case from == &m.locked.results: // one of them may be refused now
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

// followers moves what waits behind results that are refused, of the same keys, to these, and
// returns it. The caller holds mu.
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

var errBehind = errors.New("an earlier one of its key is refused")

// keep adds results to the list, and says when to try it again. written: the latest call took its
// results from the list and wrote all of them, so the others are tried at once. tried: it took them
// from the list and did not write all.
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
	case tried || k.again.IsZero(): // else those that come meanwhile would put it off for good
		k.wait = min(max(lifecycle.MinWait, 2*k.wait), lifecycle.MaxWait)
		k.again = now.Add(k.wait/2 + rand.N(k.wait))
	}
	k.n, k.oldest = len(k.results), slices.MinFunc(k.results, func(a, b *unwritten) int {
		return a.keptSince.Compare(b.keptSince)
	})
}

// unlocked returns an error if results could not be written for long.
func (m *marker) unlocked() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none error
	if took := time.Since(m.since); m.failure != nil && took >= lockedThreshold {
		none = fmt.Errorf("the results of %d delivered messages wait, and none could be written for %v: %w",
			len(m.waiting), took.Round(time.Second), m.failure)
	}
	return errors.Join(none,
		m.locked.forLong("another session of the database keeps the rows of %d delivered messages locked, that of "+
			"message %v (topic %q) for %v: end its transaction, or the next relay delivers them again"),
		m.refused.forLong("the database refuses the results of %d delivered messages, that of message %v (topic %q) "+
			"for %v: fix that, or the next relay delivers them again"))
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
