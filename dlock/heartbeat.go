package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// beatBatch is how many leases one call to Extend renews. Redis needs two milliseconds for so many, in which it looks after nobody else; with
	// fewer, waking up for each call would be most of what a heartbeat costs (docs/scale.md has both).
	beatBatch = 500
	// maxUnsettled bounds the grants that are waiting to be given back; each ends by itself within a TTL.
	maxUnsettled = 10_000
)

var errNoAnswer = errors.New("no answer for this lease")

// add puts a new lease under the heartbeat and has its window closed when it ends. It reports false if the session is closed.
func (s *Session) add(l *Lease, ends time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.windows.enter(l)
	s.closeAt(ends)
	s.turns.enter(l)
	if s.turns.first == l || s.turns.len%beatBatch == 1 { // it is the first, or the turns come faster now
		s.schedule()
	}
	return true
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
	s.turns.leave(l)
	if s.windows.len == 0 && len(s.unsettled) == 0 {
		s.stopTimers()
	}
}

// settle hands a grant of unknown outcome to the heartbeat, which gives it back as soon as the store answers.
func (s *Session) settle(g Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	t := time.Now()
	if len(s.unsettled) == 0 {
		s.settleAt = t.Add(s.retryWait())
	}
	s.unsettled = append(s.unsettled, unsettled{g, t.Add(s.ttl)})
	s.unsettled = s.unsettled[max(0, len(s.unsettled)-maxUnsettled):] // the oldest end first
	s.schedule()
}

// hurry makes it every lease's turn at once. It must be called with mu held.
func (s *Session) hurry(t time.Time) {
	s.hurried = t
	for l := range s.turns.all {
		l.due = t
	}
	s.schedule()
}

// nextTurn is when leases are to be renewed next. Each is due a third of the TTL after its last renewal. More than one call needs for all are
// taken before they are due, so that the calls are spread evenly over that third, but not while the store fails.
// It must be called with mu held and a lease to renew.
func (s *Session) nextTurn() time.Time {
	due := s.turns.first.due
	if s.failing {
		return due
	}
	early := due.Add(-s.ttl / 3)
	if s.asked.After(early) {
		early = s.asked
	}
	return earlier(due, early.Add(s.ttl/3/time.Duration(s.calls())))
}

// calls is how many it takes to renew all leases.
func (s *Session) calls() int { return (s.turns.len + beatBatch - 1) / beatBatch }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// schedule sees to it that the next beat comes in time. It never postpones one: that finds nothing to do yet. It must be called with mu held.
func (s *Session) schedule() {
	if s.closed || s.beating { // the end of a beat schedules the next
		return
	}
	var at time.Time
	if s.turns.len > 0 {
		at = s.nextTurn()
	}
	if len(s.unsettled) > 0 && (at.IsZero() || s.settleAt.Before(at)) {
		at = s.settleAt
	}
	if at.IsZero() || !s.nextAt.IsZero() && !at.Before(s.nextAt) {
		return
	}
	s.nextAt = at
	wait := max(0, time.Until(at))
	if s.next == nil {
		s.next = time.AfterFunc(wait, s.beat)
	} else {
		s.next.Reset(wait)
	}
}

// stopTimers must be called with mu held. It leaves the closer, which finds nothing to do: stopping that with every last lease and starting it
// with every first costs more.
func (s *Session) stopTimers() {
	if s.next != nil {
		s.next.Stop()
		s.nextAt = time.Time{}
	}
	if s.windows.len == 0 {
		s.stopSleeper()
	}
}

func (s *Session) stopSleeper() {
	if s.sleeper != nil {
		s.sleeper.Stop()
		s.sleeper = nil
	}
}

// retryWait is the pause after a heartbeat that failed: several fit into a trust window, and hosts that lost
// the store together do not come back together.
func (s *Session) retryWait() time.Duration {
	return s.ttl/10 + rand.N(s.ttl/20)
}

// beat is the heartbeat: it renews the leases whose turn it is, in one call, and gives back what is unsettled. It runs on the
// goroutine of a timer, one at a time, and nothing that a store does (an error, a panic, a slow call)
// keeps the next one from coming.
func (s *Session) beat() {
	s.mu.Lock()
	if s.closed || s.beating {
		s.mu.Unlock()
		return
	}
	s.beating = true
	s.beatEnd = make(chan struct{})
	s.nextAt = time.Time{}
	started := time.Now()
	var owed []unsettled
	settle := len(s.unsettled) > 0 && !s.settleAt.After(started)
	if settle {
		owed = slices.DeleteFunc(s.unsettled, func(u unsettled) bool { return started.After(u.ends) })
		s.unsettled = nil
	}
	var batch []*Lease
	var grants []Grant
	if s.turns.len > 0 && (settle || !s.nextTurn().After(started)) { // after a failed call it is good to know how the store is
		batch, grants = s.turn(started)
	}
	s.mu.Unlock()

	answered := len(batch) == 0 || s.renew(batch, grants)
	if answered {
		owed, _ = s.settleAll(s.life, owed)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.beating = false
	close(s.beatEnd)
	if len(owed) > 0 {
		s.settleAt = time.Now().Add(s.retryWait())
	}
	s.unsettled = append(owed, s.unsettled...)
	s.unsettled = s.unsettled[max(0, len(s.unsettled)-maxUnsettled):]
	if s.closed || s.windows.len == 0 && len(s.unsettled) == 0 {
		s.stopTimers()
		return
	}
	s.schedule()
}

// turn takes the leases that the next call is to renew. It must be called with mu held and a lease to renew.
func (s *Session) turn(t time.Time) ([]*Lease, []Grant) {
	s.asked = t
	n := (s.turns.len + s.calls() - 1) / s.calls()
	batch, grants := make([]*Lease, 0, n), make([]Grant, 0, n)
	for l := range s.turns.all {
		batch, grants = append(batch, l), append(grants, l.grant)
		if len(batch) == n {
			break
		}
	}
	return batch, grants
}

// renew reports whether the store answered for every lease of the batch.
func (s *Session) renew(batch []*Lease, grants []Grant) bool {
	sent := now()
	results, err := s.callExtend(grants)
	if err != nil && s.life.Err() != nil {
		return false // Close interrupted it: not the store's failure
	}
	t := now()
	var ended []*Lease
	renewed, unknown := make([]*Lease, 0, len(batch)), batch[:0]
	s.mu.Lock()
	for i, l := range batch {
		switch {
		case err == nil && results[i].Outcome == OK:
			if l.renewed(t, sent, results[i].News) {
				renewed = append(renewed, l)
			} else { // it is over
				s.turns.leave(l)
				s.closeAt(t.mono)
			}
		case err == nil && results[i].Outcome == Lost:
			if l.end(lost, &LostError{Name: l.grant.Name, Slot: l.grant.Slot, Revoked: results[i].Revoked}) {
				ended = append(ended, l)
			}
		case s.turns.has(l): // one that is meant to end does not end by the store's silence
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
	s.takeTurn(unknown, earlier(next, t.mono.Add(s.retryWait())))
	s.takeTurn(slices.DeleteFunc(renewed, func(l *Lease) bool { return !s.turns.has(l) }), next)
	for _, l := range ended {
		s.forget(l)
	}
	if err != nil {
		// While the store hangs, the turn of others may come after their windows have closed: that is its silence too.
		for l := range s.turns.all {
			if l.due.After(t.mono) {
				break
			}
			l.unanswered(err)
		}
	}
	answered := err == nil && len(unknown) == 0
	s.failing = !answered
	s.mu.Unlock()
	for _, l := range ended {
		l.tell()
	}
	return answered && s.life.Err() == nil
}

// takeTurn must be called with mu held, for leases that are renewed.
func (s *Session) takeTurn(leases []*Lease, due time.Time) {
	s.turns.leave(leases...)
	for _, l := range leases {
		l.due = due
	}
	s.turns.enter(leases...)
}

// settleAll gives grants back in batches, each bounded by StoreTimeout and all by ctx. It returns what is still unsettled, and
// an error if that is anything.
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
			if r.Outcome == Unknown {
				left, unknown = append(left, owed[i]), cmp.Or(r.Err, errNoAnswer)
			}
		}
		owed = owed[len(batch):]
	}
	return left, unknown
}

func (s *Session) callExtend(grants []Grant) (results []Result, err error) {
	ctx, cancel := context.WithTimeout(s.life, s.storeTimeout)
	defer cancel()
	defer recovered(&err)
	results, err = s.store.Extend(ctx, s.ttl, grants...)
	if err == nil && len(results) != len(grants) {
		err = fmt.Errorf("the store answered %d of %d", len(results), len(grants))
	}
	return results, err
}
