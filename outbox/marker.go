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

func (k *marker) put(a attempt, written func(counts bool), kept func()) {
	k.mu.Lock()
	k.waiting = append(k.waiting, &unwritten{attempt: a, written: written, kept: kept})
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default: // it is about to look
	}
}

// left is how many results are not written.
func (k *marker) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.waiting) + len(k.locked.results) + len(k.refused.results)
}

// waitEmpty waits until everything is written but what cannot be, or ctx ends.
func (k *marker) waitEmpty(ctx context.Context) {
	untried := func(u *unwritten) bool { return !u.retried && u.refused != errBehind }
	for lifecycle.Sleep(ctx, emptyCheckInterval) {
		k.mu.Lock()
		done := len(k.waiting) == 0 && !k.writing && !slices.ContainsFunc(k.refused.results, untried)
		k.mu.Unlock()
		if done {
			return
		}
	}
}

// run writes results until ctx ends, and returns how many it could not write.
func (k *marker) run(ctx context.Context) (left int) {
	wait := lifecycle.MinWait
	var round time.Time // when another round begins; zero: none has failed alone
	for {
		batch, from, later, moved := k.take()
		k.tell(moved)
		wake := k.wake
		switch {
		case len(batch) > 0:
			err := k.write(batch, from)
			if err == nil {
				wait, round = lifecycle.MinWait, time.Time{}
			}
			// Fewer may be written, or others.
			if err == nil || from != &k.waiting || len(batch) == 1 || k.batch.Limit() < len(batch) {
				continue
			}
			later, wake = wait/2+rand.N(wait), nil
			wait = min(2*wait, lifecycle.MaxWait)
		case k.anyFailed():
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
			return k.left()
		case <-wake:
		case <-again:
		}
		if !round.IsZero() && !time.Now().Before(round) {
			round = time.Time{}
			k.nextRound()
		}
	}
}

func (k *marker) anyFailed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.failed) > 0
}

// take takes some of what waits: those that are kept and whose time has come, or others. If there
// are none, it returns in how long to look again; 0: something waits.
//
// It takes one result of a row. There are two if this relay has lost its shard before it wrote the
// first, and leads it again; or if the database was put back to a copy, and has given the number of
// a row to another message. Some databases refuse two together, and others may take one for the
// other. moved are those that are kept since now.
func (k *marker) take() (batch []*unwritten, from *[]*unwritten, later time.Duration, moved []*unwritten) {
	k.mu.Lock()
	defer k.mu.Unlock()
	moved = k.followers()
	from, limit := &k.waiting, k.batch.Limit()
	for _, list := range []*kept{&k.refused, &k.locked} {
		switch wait := time.Until(list.again); {
		case len(list.results) == 0:
		case wait <= 0:
			from = &list.results
		case later == 0 || wait < later:
			later = wait
		}
	}
	if from == &k.refused.results && k.refusedLast && len(k.waiting) > 0 && len(k.failed) == 0 {
		from = &k.waiting // in turns
	}
	k.refusedLast = from == &k.refused.results
	switch {
	case k.refusedLast:
		limit = 1
	case from == &k.waiting && len(k.failed) > 0:
		batch = k.another()
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
	k.writing = len(batch) > 0
	return batch, from, later, moved
}

// another returns the one that was tried alone least often, of those that are the first of their
// key and have not failed in this round. None, if enough have. The caller holds mu.
func (k *marker) another() (least []*unwritten) {
	if len(k.failed) == maxAlone {
		return nil
	}
	keys := map[string]bool{}
	for _, u := range k.waiting {
		key := u.message.Key
		first := key == "" || !keys[key]
		keys[key] = true
		if first && !slices.Contains(k.failed, u) && (least == nil || u.alone < least[0].alone) {
			least = []*unwritten{u}
		}
	}
	return least
}

// nextRound has those that have failed alone tried again.
func (k *marker) nextRound() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = nil
}

// write writes a batch. If that fails, the batch waits again.
func (k *marker) write(batch []*unwritten, from *[]*unwritten) error {
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
		k.putBack(batch, from, err)
		return err
	}
	counts, locked := setOf(marked.Counted), setOf(marked.Locked)
	var still []*unwritten
	for _, u := range batch {
		if locked[u.result.ID] {
			still = append(still, u)
			continue
		}
		k.relay.report(u.attempt, counts[u.result.ID])
		u.written(counts[u.result.ID])
	}
	k.mu.Lock()
	for _, u := range still {
		u.refused = nil
	}
	// Those of a call for locked rows that has failed are tried alone now that another has not.
	apart := slices.DeleteFunc(slices.Clone(k.locked.results), func(u *unwritten) bool { return u.refused == nil })
	k.locked.results = without(k.locked.results, apart)
	refused := append(k.failed, apart...)
	k.failed, k.failure = nil, nil
	k.waiting = without(k.waiting, refused)
	k.refused.keep(refused, len(batch) > len(still) && from == &k.refused.results, false)
	k.locked.keep(still, len(still) == 0 && from == &k.locked.results, from == &k.locked.results)
	k.mu.Unlock()
	k.tell(still)
	k.tell(refused)
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
func (k *marker) tell(results []*unwritten) {
	for _, u := range results {
		if !u.told {
			u.told = true
			u.kept()
		}
	}
}

// putBack has the results of a call that failed wait again.
func (k *marker) putBack(batch []*unwritten, from *[]*unwritten, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	alone := len(batch) == 1
	if alone {
		batch[0].refused = err
		batch[0].alone++
	}
	switch {
	case from == &k.waiting:
		if k.failure == nil {
			k.since = time.Now()
		}
		k.failure = err
		*from = append(batch, *from...)
		if alone {
			k.failed = append(k.failed, batch[0])
		}
	case from == &k.locked.results: // one of them may be refused now
		for _, u := range batch {
			u.refused = err
		}
		k.locked.keep(batch, false, true)
	default:
		batch[0].retried = true
		key := batch[0].message.Key
		later := slices.DeleteFunc(slices.Clone(*from), func(u *unwritten) bool {
			return key == "" || u.message.Key != key
		})
		*from = without(*from, later)
		k.refused.keep(append(batch, later...), false, true)
	}
}

// followers moves what waits behind results that are refused, of the same keys, to these, and
// returns it. The caller holds mu.
func (k *marker) followers() (moved []*unwritten) {
	if len(k.refused.results) == 0 {
		return nil
	}
	keys := map[string]bool{}
	for _, u := range k.refused.results {
		keys[u.message.Key] = true
	}
	for _, u := range k.waiting {
		if u.message.Key != "" && keys[u.message.Key] {
			u.refused = errBehind
			moved = append(moved, u)
		}
	}
	k.waiting, k.failed = without(k.waiting, moved), without(k.failed, moved)
	k.refused.keep(moved, false, false)
	return moved
}

var errBehind = errors.New("an earlier one of its key is refused")

// keep adds results to the list, and says when to try it again. written: the latest call took its
// results from the list and wrote all of them, so the others are tried at once. tried: it took them
// from the list and did not write all.
func (l *kept) keep(results []*unwritten, written, tried bool) {
	now := time.Now()
	for _, u := range results {
		if u.keptSince.IsZero() {
			u.keptSince = now
		}
		l.results = append(l.results, u)
	}
	switch {
	case len(l.results) == 0:
		*l = kept{}
		return
	case written:
		l.wait, l.again = 0, now
	case tried || l.again.IsZero(): // else those that come meanwhile would put it off for good
		l.wait = min(max(lifecycle.MinWait, 2*l.wait), lifecycle.MaxWait)
		l.again = now.Add(l.wait/2 + rand.N(l.wait))
	}
	l.n, l.oldest = len(l.results), slices.MinFunc(l.results, func(a, b *unwritten) int {
		return a.keptSince.Compare(b.keptSince)
	})
}

// unlocked returns an error if results could not be written for long.
func (k *marker) unlocked() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none error
	if took := time.Since(k.since); k.failure != nil && took >= lockedThreshold {
		none = fmt.Errorf("the results of %d delivered messages wait, and none could be written for %v: %w",
			len(k.waiting), took.Round(time.Second), k.failure)
	}
	return errors.Join(none,
		k.locked.forLong("another session of the database keeps the rows of %d delivered messages locked, that of "+
			"message %v (topic %q) for %v: end its transaction, or the next relay delivers them again"),
		k.refused.forLong("the database refuses the results of %d delivered messages, that of message %v (topic %q) "+
			"for %v: mend that, or the next relay delivers them again"))
}

func (l *kept) forLong(text string) error {
	if l.n == 0 {
		return nil
	}
	m, took := l.oldest.message, time.Since(l.oldest.keptSince)
	if took < lockedThreshold {
		return nil
	}
	err := fmt.Errorf(text, l.n, ID(m.ID), m.Topic, took.Round(time.Second))
	if l.oldest.refused != nil {
		err = fmt.Errorf("%w: %w", err, l.oldest.refused)
	}
	return err
}
