package dlock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// beatBatch is how many leases one call to Extend renews. Redis needs two milliseconds for so
	// many, in which it looks after nobody else; with fewer, waking up for each call would be most
	// of what a heartbeat costs (docs/scale.md has both).
	beatBatch = 500
	// maxUnsettled bounds the grants that are waiting to be given back; each ends by itself within
	// a TTL.
	maxUnsettled = 10_000
)

var errNoAnswer = errors.New("no answer for this lease")

// A heart renews the leases of one shard of the store, and gives back the grants of unknown outcome
// there. It has one call under way at a time, and waits for no other heart. Its fields are guarded
// by the session's mu.
type heart struct {
	session *Session
	shard   string

	turns     line      // the leases that are renewed, by when that is due
	asked     time.Time // when the last call to renew was sent
	failing   bool      // and it was not answered for all
	unsettled []unsettled
	settleAt  time.Time // when to give it back; zero if there is nothing
	beating   bool      // a beat is going on
	beatEnd   chan struct{}
	next      *time.Timer // the next beat; nil or stopped while there is nothing to do
	nextAt    time.Time
}

func (h *heart) init(s *Session, shard string) {
	h.session, h.shard = s, shard
	h.turns = line{place: func(l *Lease) *place { return &l.turn }, key: func(l *Lease) time.Time { return l.due }}
}

// shardOf tells where a name lives. A store that panics has no shards.
func (s *Session) shardOf(name string) (shard string) {
	if s.sharder == nil {
		return ""
	}
	defer func() { _ = recover() }()
	return s.sharder.Shard(name)
}

// heart returns the heart of a shard. It must be called with mu held.
func (s *Session) heart(shard string) *heart {
	if shard == "" {
		return &s.main
	}
	h := s.hearts[shard]
	if h == nil {
		h = new(heart)
		h.init(s, shard)
		if s.hearts == nil {
			s.hearts = map[string]*heart{}
		}
		s.hearts[shard] = h
	}
	return h
}

// allHearts must be iterated over with mu held.
func (s *Session) allHearts(yield func(*heart) bool) {
	if !yield(&s.main) {
		return
	}
	for _, h := range s.hearts {
		if !yield(h) {
			return
		}
	}
}

// add puts a new lease under the heartbeat and has its window closed when it ends. It reports false
// if the session is closed.
func (s *Session) add(l *Lease, ends time.Time) bool {
	shard := s.shardOf(l.grant.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.windows.enter(l)
	s.closeAt(ends)
	s.heart(shard).enter(l)
	return true
}

// enter must be called with mu held.
func (h *heart) enter(l *Lease) {
	l.heart = h
	h.turns.enter(l)
	if h.turns.first == l || h.turns.len%beatBatch == 1 { // it is the first, or the turns come faster now
		h.schedule()
	}
}

// remove takes out a lease that has ended.
func (s *Session) remove(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(l)
}

// forget must be called with mu held.
func (s *Session) forget(l *Lease) {
	if l.counted {
		l.counted = false
		s.watched--
		if s.watched == 0 {
			s.stopSleeper()
		}
	}
	s.windows.leave(l)
	l.heart.turns.leave(l)
	if l.heart.idle() {
		l.heart.stop()
	}
}

// settle hands a grant of unknown outcome to the heartbeat, which gives it back as soon as the
// store answers.
func (s *Session) settle(g Grant) {
	shard := s.shardOf(g.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	h, t := s.heart(shard), time.Now()
	if len(h.unsettled) == 0 {
		h.settleAt = t.Add(s.retryWait())
	}
	h.owe(unsettled{g, t.Add(s.ttl)})
	h.schedule()
}

// owe must be called with mu held.
func (h *heart) owe(more ...unsettled) {
	h.unsettled = append(h.unsettled, more...)
	h.unsettled = h.unsettled[max(0, len(h.unsettled)-maxUnsettled):] // the oldest end first
}

// hurry makes it every lease's turn at once. It must be called with mu held.
func (s *Session) hurry(t time.Time) {
	s.hurried = t
	for h := range s.allHearts {
		for l := range h.turns.all {
			l.due = t
		}
		h.schedule()
	}
}

// nextTurn is when leases are to be renewed next. Each is due a third of the TTL after its last
// renewal. More than one call needs for all are taken before they are due, so that the calls are
// spread evenly over that third, but not while the store fails. It must be called with mu held and
// a lease to renew.
func (h *heart) nextTurn() time.Time {
	due := h.turns.first.due
	if h.failing {
		return due
	}
	early := due.Add(-h.session.ttl / 3)
	if h.asked.After(early) {
		early = h.asked
	}
	return earlier(due, early.Add(h.session.ttl/3/time.Duration(h.calls())))
}

// calls is how many it takes to renew all leases.
func (h *heart) calls() int { return (h.turns.len + beatBatch - 1) / beatBatch }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// schedule sees to it that the next beat comes in time. It never postpones one: that finds nothing
// to do yet. It must be called with mu held.
func (h *heart) schedule() {
	if h.session.closed || h.beating { // the end of a beat schedules the next
		return
	}
	var at time.Time
	if h.turns.len > 0 {
		at = h.nextTurn()
	}
	if len(h.unsettled) > 0 && (at.IsZero() || h.settleAt.Before(at)) {
		at = h.settleAt
	}
	if at.IsZero() || !h.nextAt.IsZero() && !at.Before(h.nextAt) {
		return
	}
	h.nextAt = at
	wait := max(0, time.Until(at))
	if h.next == nil {
		h.next = time.AfterFunc(wait, h.beat)
	} else {
		h.next.Reset(wait)
	}
}

// idle must be called with mu held.
func (h *heart) idle() bool { return h.turns.len == 0 && len(h.unsettled) == 0 }

// stop must be called with mu held.
func (h *heart) stop() {
	if h.next != nil {
		h.next.Stop()
		h.nextAt = time.Time{}
	}
}

func (s *Session) stopSleeper() {
	if s.sleeper != nil {
		s.sleeper.Stop()
		s.sleeper = nil
	}
}

// retryWait is the pause after a heartbeat that failed: several fit into a trust window, and hosts
// that lost the store together do not come back together.
func (s *Session) retryWait() time.Duration {
	return s.ttl/10 + rand.N(s.ttl/20)
}

// beat is the heartbeat: it renews the leases whose turn it is, in one call, and gives back what is
// unsettled. It runs on the goroutine of a timer, one at a time, and nothing that a store does (an
// error, a panic, a slow call) keeps the next one from coming.
func (h *heart) beat() {
	s := h.session
	s.mu.Lock()
	if s.closed || h.beating {
		s.mu.Unlock()
		return
	}
	h.beating = true
	h.beatEnd = make(chan struct{})
	h.nextAt = time.Time{}
	started := time.Now()
	var owed []unsettled
	settle := len(h.unsettled) > 0 && !h.settleAt.After(started)
	if settle {
		owed = slices.DeleteFunc(h.unsettled, func(u unsettled) bool { return started.After(u.ends) })
		h.unsettled = nil
	}
	var batch []*Lease
	if h.turns.len > 0 && (settle || !h.nextTurn().After(started)) { // after a failed call it is good to know how the store is
		batch = h.turn(started)
	}
	s.mu.Unlock()

	answered := len(batch) == 0 || h.renew(batch)
	if answered {
		owed, _ = s.settleAll(s.life, owed)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	h.beating = false
	close(h.beatEnd)
	if len(owed) > 0 {
		h.settleAt = time.Now().Add(s.retryWait())
	}
	newer := h.unsettled
	h.unsettled = owed
	h.owe(newer...)
	if s.closed || h.idle() {
		h.stop()
		if h.idle() && s.hearts[h.shard] == h { // its node may have left the Cluster
			delete(s.hearts, h.shard)
		}
		return
	}
	h.schedule()
}

// turn takes the leases that the next call is to renew. It must be called with mu held and a lease
// to renew.
func (h *heart) turn(t time.Time) []*Lease {
	h.asked = t
	batch := make([]*Lease, 0, (h.turns.len+h.calls()-1)/h.calls())
	for l := range h.turns.all {
		batch = append(batch, l)
		if len(batch) == cap(batch) {
			break
		}
	}
	return batch
}

// renew reports whether the store answered for every lease of the batch.
func (h *heart) renew(batch []*Lease) bool {
	s := h.session
	grants := make([]Grant, len(batch))
	oldest := batch[0].sent.mono // a lease's is written by its heart alone
	for i, l := range batch {
		grants[i] = l.grant
		oldest = earlier(oldest, l.sent.mono)
	}
	sent := now()
	late := oldest.Add(s.trust - s.trust/3) // from then on a window is about to close
	patience := s.storeTimeout
	if !sent.mono.Before(late) {
		patience /= 2
	}
	results, err := s.callExtend(patience, grants)
	if err != nil && s.life.Err() != nil {
		return false // Close interrupted it: not the store's failure
	}
	t := now()
	var ended []*Lease
	renewed, unknown := make([]*Lease, 0, len(batch)), batch[:0]
	s.mu.Lock()
	for i, l := range batch {
		switch {
		case err == nil && results[i].Outcome == GrantOK:
			if l.renewed(t, sent, results[i].Info) {
				renewed = append(renewed, l)
			} else { // it is over
				h.turns.leave(l)
				s.closeAt(t.mono)
			}
		case err == nil && results[i].Outcome == GrantLost:
			if l.end(lost, &LostError{Name: l.grant.Name, Slot: l.grant.Slot, RevokedBy: results[i].RevokedBy}) {
				ended = append(ended, l)
			}
		case h.turns.has(l): // one that is meant to end does not end by the store's silence
			why := err
			if why == nil {
				why = cmp.Or(results[i].Err, errNoAnswer)
			}
			l.unanswered(why)
			unknown = append(unknown, l)
		}
	}
	s.windows.leave(renewed...)
	s.windows.enter(renewed...)
	next := sent.mono.Add(s.ttl / 3)
	if s.hurried.After(sent.mono) {
		next = s.hurried
	}
	// Close to the end of a window there are no pauses: that the store is back has to be noticed in
	// time.
	retry := earlier(t.mono.Add(s.retryWait()), later(late, sent.mono.Add(s.storeTimeout/2)))
	h.takeTurn(unknown, earlier(next, later(retry, t.mono)))
	renewed = slices.DeleteFunc(renewed, func(l *Lease) bool { return !h.turns.has(l) })
	h.takeTurn(renewed, next)
	for _, l := range ended {
		s.forget(l)
	}
	if err != nil {
		// While the store hangs, the turn of others may come after their windows have closed: that
		// is its silence too.
		for l := range h.turns.all {
			if l.due.After(t.mono) {
				break
			}
			l.unanswered(err)
		}
	}
	answered := err == nil && len(unknown) == 0
	h.failing = !answered
	if s.sharder != nil && !answered { // the others may have moved as well, and are not to wait for their turn here
		renewed = slices.Collect(h.turns.all)
	}
	s.mu.Unlock()
	for _, l := range ended {
		l.tell()
	}
	h.follow(renewed)
	return answered && s.life.Err() == nil
}

// takeTurn must be called with mu held, for leases that are renewed.
func (h *heart) takeTurn(leases []*Lease, due time.Time) {
	h.turns.leave(leases...)
	for _, l := range leases {
		l.due = due
	}
	h.turns.enter(leases...)
}

// follow hands leases whose names have moved to another shard over to its heart.
func (h *heart) follow(leases []*Lease) {
	s := h.session
	if s.sharder == nil {
		return
	}
	moved := map[*Lease]string{}
	for _, l := range leases {
		if shard := s.shardOf(l.grant.Name); shard != h.shard && shard != "" {
			moved[l] = shard
		}
	}
	if len(moved) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l, shard := range moved {
		if h.turns.has(l) { // else it has ended meanwhile
			h.turns.leave(l)
			s.heart(shard).enter(l)
		}
	}
}

// settleAll gives grants back in batches, each bounded by StoreTimeout and all by ctx. It returns
// what is still unsettled, and an error if that is anything.
func (s *Session) settleAll(ctx context.Context, owed []unsettled) ([]unsettled, error) {
	var left []unsettled
	var unknown error
	for len(owed) > 0 {
		batch := make([]Grant, min(len(owed), beatBatch))
		for i := range batch {
			batch[i] = owed[i].Grant
		}
		ctx, cancel := context.WithTimeout(ctx, s.storeTimeout)
		results, err := s.callRelease(ctx, batch)
		cancel()
		if err != nil {
			return append(left, owed...), err
		}
		for i, r := range results {
			if r.Outcome == GrantUnknown {
				left, unknown = append(left, owed[i]), cmp.Or(r.Err, errNoAnswer)
			}
		}
		owed = owed[len(batch):]
	}
	return left, unknown
}
