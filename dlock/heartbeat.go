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
	// beatBatch is how many leases one call to Extend renews. A store needs about a millisecond for so many.
	beatBatch = 500
	// maxUnsettled bounds the grants that are waiting to be given back; each ends by itself within a TTL.
	maxUnsettled = 10_000
	// sleepCheck is how often, while leases are held, a session looks whether the machine was asleep.
	sleepCheck = 500 * time.Millisecond
	// sleepNoise is what may come between two looks without sleep: rounding, and where sleep is only an estimate
	// a wall clock that is being slewed. It would otherwise cause a heartbeat at every look.
	sleepNoise = 10 * time.Millisecond
)

var errNoAnswer = errors.New("no answer for this lease")

// add puts a new lease under the heartbeat.
func (s *Session) add(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.leases[l] = struct{}{}
	s.schedule(s.ttl / 3)
	return true
}

// watch looks for sleep of the machine from now on, until the last lease of which somebody waits for the end is gone.
func (s *Session) watch(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.leases[l]; !held {
		return
	}
	l.counted = true
	s.watched++
	if s.sleeper == nil {
		s.slept = suspended()
		s.sleeper = time.AfterFunc(sleepCheck, s.checkSleep)
	}
}

func (s *Session) remove(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.counted {
		l.counted = false
		s.watched--
		if s.watched == 0 {
			s.stopSleeper()
		}
	}
	delete(s.leases, l)
	if len(s.leases) == 0 && len(s.unsettled) == 0 {
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
	s.unsettled = append(s.unsettled, unsettled{g, time.Now().Add(s.ttl)})
	s.unsettled = s.unsettled[max(0, len(s.unsettled)-maxUnsettled):] // the oldest end first
	s.schedule(s.retryWait())
}

// beatSoon makes the next beat come after wait at the latest.
func (s *Session) beatSoon(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule(wait)
}

// schedule must be called with mu held. It never postpones a beat.
func (s *Session) schedule(wait time.Duration) {
	at := time.Now().Add(wait)
	switch {
	case s.closed || s.beating: // the end of a beat schedules the next
		if s.nextAt.IsZero() || at.Before(s.nextAt) {
			s.nextAt = at
		}
	case s.next == nil:
		s.nextAt = at
		s.next = time.AfterFunc(wait, s.beat)
	case s.nextAt.IsZero() || at.Before(s.nextAt):
		s.nextAt = at
		s.next.Reset(wait)
	}
}

// stopTimers must be called with mu held.
func (s *Session) stopTimers() {
	if s.next != nil {
		s.next.Stop()
		s.nextAt = time.Time{}
	}
	s.stopSleeper()
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

// beat is the heartbeat: it renews every lease, and gives back what is unsettled. It runs on the
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
	leases := make([]*Lease, 0, len(s.leases))
	for l := range s.leases {
		leases = append(leases, l)
	}
	owed := slices.DeleteFunc(s.unsettled, func(u unsettled) bool { return started.After(u.ends) })
	s.unsettled = nil
	s.mu.Unlock()

	answered := s.renewAll(leases)
	if answered {
		var err error
		owed, err = s.settleAll(s.life, owed)
		answered = err == nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.beating = false
	close(s.beatEnd)
	s.unsettled = append(owed, s.unsettled...)
	s.unsettled = s.unsettled[max(0, len(s.unsettled)-maxUnsettled):]
	if s.closed || len(s.leases) == 0 && len(s.unsettled) == 0 {
		s.stopTimers()
		return
	}
	wait := max(0, s.ttl/3-time.Since(started))
	if !answered {
		wait = min(wait, s.retryWait())
	}
	if !s.nextAt.IsZero() { // somebody asked for an earlier one meanwhile
		wait = min(wait, max(0, time.Until(s.nextAt)))
		s.nextAt = time.Time{}
	}
	s.schedule(wait)
}

// renewAll reports whether the store answered for every lease.
func (s *Session) renewAll(leases []*Lease) bool {
	batch := make([]*Lease, 0, min(len(leases), beatBatch))
	grants := make([]Grant, 0, cap(batch))
	answered := true
	flush := func(later []*Lease) {
		if len(batch) == 0 || s.life.Err() != nil {
			return
		}
		sent := now()
		results, err := s.callExtend(grants)
		if err != nil && s.life.Err() != nil {
			return // Close interrupted it: not the store's failure
		}
		for i, l := range batch {
			switch {
			case err != nil:
				l.unanswered(err)
			case results[i].Outcome == OK:
				l.renewed(sent, results[i].News)
			case results[i].Outcome == Lost:
				l.lose(&LostError{Name: l.grant.Name, Slot: l.grant.Slot, Revoked: results[i].Revoked})
			default:
				l.unanswered(cmp.Or(results[i].Err, errNoAnswer))
				answered = false
			}
		}
		if err != nil {
			answered = false
			// While the store hangs, the turn of the others may come after their windows have closed:
			// that is its silence too.
			for _, l := range later {
				l.unanswered(err)
			}
		}
		batch, grants = batch[:0], grants[:0]
	}
	for i, l := range leases {
		l.mu.Lock()
		renew := l.renew && l.state == held
		l.mu.Unlock()
		if !renew {
			continue
		}
		batch, grants = append(batch, l), append(grants, l.grant)
		if len(batch) == beatBatch {
			flush(leases[i+1:])
		}
	}
	flush(nil)
	return answered && s.life.Err() == nil
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

// checkSleep looks, off the heartbeat because that may be waiting for the store, whether the machine was
// asleep: the timers of the leases have then stood still and go off too late.
func (s *Session) checkSleep() {
	slept := suspended()
	s.mu.Lock()
	if s.sleeper == nil {
		s.mu.Unlock()
		return
	}
	s.sleeper.Reset(sleepCheck)
	asleep := slept > s.slept+sleepNoise
	s.slept = slept
	var leases []*Lease
	if asleep {
		for l := range s.leases {
			leases = append(leases, l)
		}
	}
	s.mu.Unlock()
	for _, l := range leases {
		l.check()
	}
	if asleep {
		s.beatSoon(0)
	}
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
