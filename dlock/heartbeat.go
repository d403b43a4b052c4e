package dlock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

const (
	// beatBatch is how many grants one call to Extend renews, or up to MaxShared more. Redis takes
	// two milliseconds for this many and serves no other client meanwhile. With smaller batches,
	// most of a heartbeat's cost would be the wake-up (see proof/benchmarks/COSTS.md).
	beatBatch = 500
	// maxPending is the maximum number of grants that wait for their release. Beyond it, the oldest
	// are dropped and expire within a TTL.
	maxPending = 10_000
)

var errNoAnswer = errors.New("no answer for this lease")

// A heartbeat renews the leases on one shard of the store and releases the shard's grants of
// unknown outcome. It makes one call at a time and does not wait for other heartbeats. The
// session's mu guards its fields.
type heartbeat struct {
	session *Session
	shard   string

	renewQueue leaseList // the leases to renew, sorted by due
	lastSent   time.Time // when the last call to Extend was sent
	renewalState

	pending   []pendingRelease
	releaseAt time.Time // when to release them; zero if there are none

	beating  bool          // beat is running
	beatDone chan struct{} // closed when it returns
	timer    *time.Timer   // runs beat; nil or stopped while there is nothing to do
	timerAt  time.Time     // when it fires; zero if stopped
}

// A renewalState says whether the calls of a heartbeat succeed.
type renewalState struct {
	failing   bool      // the last call to Extend was not answered for every lease
	err       error     // why
	changedAt time.Time // when failing last changed; zero if never
}

// note records the error of a call, or nil.
func (r *renewalState) note(err error) {
	if failing := err != nil; failing != r.failing {
		r.failing, r.changedAt = failing, time.Now()
	}
	r.err = err
}

func (h *heartbeat) init(s *Session, shard string) {
	h.session, h.shard = s, shard
	h.renewQueue = leaseList{
		node: func(l *Lease) *listNode { return &l.renewNode },
		key:  func(l *Lease) time.Time { return l.due },
	}
}

// shardOf returns the shard of a name. If the store's Shard panics, the name has no shard.
func (s *Session) shardOf(name string) (shard string) {
	if s.sharder == nil {
		return ""
	}
	defer func() { _ = recover() }()
	return s.sharder.Shard(name)
}

// heartbeat returns the heartbeat of a shard and creates it if necessary. The caller holds mu.
func (s *Session) heartbeat(shard string) *heartbeat {
	if shard == "" {
		return &s.main
	}
	h := s.heartbeats[shard]
	if h == nil {
		h = new(heartbeat)
		h.init(s, shard)
		if s.heartbeats == nil {
			s.heartbeats = map[string]*heartbeat{}
		}
		s.heartbeats[shard] = h
	}
	return h
}

// allHeartbeats iterates over all heartbeats. The caller holds mu.
func (s *Session) allHeartbeats(yield func(*heartbeat) bool) {
	if !yield(&s.main) {
		return
	}
	for _, h := range s.heartbeats {
		if !yield(h) {
			return
		}
	}
}

// add starts to renew a new lease and to watch its trust window, which closes at ends. began is
// when the caller started to wait for the lease. add returns false if the session is closed.
func (s *Session) add(l *Lease, ends, began time.Time) bool {
	shard := s.shardOf(l.grant.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.expiryQueue.insert(l)
	s.expireAt(ends)
	s.heartbeat(shard).insert(l)
	s.acquired(l, began)
	return true
}

// insert starts to renew a lease. The caller holds mu.
func (h *heartbeat) insert(l *Lease) {
	l.heartbeat = h
	before := h.calls()
	h.renewQueue.insert(l)
	if h.renewQueue.first == l || h.calls() > before { // it is due first or adds a call per cycle
		h.schedule()
	}
}

// remove removes a lease that has ended.
func (s *Session) remove(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(l)
}

// forget removes a lease that has ended. The caller holds mu.
func (s *Session) forget(l *Lease) {
	if l.counted {
		l.counted = false
		s.watched--
		if s.watched == 0 {
			s.stopSleepTimer()
		}
	}
	s.expiryQueue.remove(l)
	l.heartbeat.renewQueue.remove(l)
	if l.heartbeat.idle() {
		l.heartbeat.stop()
	}
}

// releaseLater makes the heartbeat release grants of unknown outcome as soon as the store answers.
// All grants belong to one lease.
func (s *Session) releaseLater(grants ...driver.Grant) {
	shard := s.shardOf(grants[0].Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	h, t := s.heartbeat(shard), time.Now()
	if len(h.pending) == 0 {
		h.releaseAt = t.Add(s.retryWait())
	}
	for _, g := range grants {
		h.addPending(pendingRelease{g, t.Add(s.ttl)})
	}
	h.schedule()
}

// addPending adds grants to release. The caller holds mu.
func (h *heartbeat) addPending(more ...pendingRelease) {
	h.pending = append(h.pending, more...)
	h.pending = h.pending[max(0, len(h.pending)-maxPending):] // drop the oldest, which expire first
}

// renewNow makes every lease due at t. The caller holds mu.
func (s *Session) renewNow(t time.Time) {
	s.renewNowAt = t
	for h := range s.allHeartbeats {
		for l := range h.renewQueue.all {
			l.due = t
		}
		h.schedule()
	}
}

// nextRenewal returns when to call Extend next. A lease is due a third of the TTL after its last
// renewal. If renewing all leases takes several calls, they are spread evenly over that third, so
// they come before the leases are due. While the store fails, calls are not spread, because that
// would only make more of them. The caller holds mu, and there is a lease to renew.
func (h *heartbeat) nextRenewal() time.Time {
	due := h.renewQueue.first.due
	if h.failing {
		return due
	}
	early := due.Add(-h.session.ttl / 3)
	if h.lastSent.After(early) {
		early = h.lastSent
	}
	return earlier(due, early.Add(h.session.ttl/3/time.Duration(h.calls())))
}

// calls returns how many calls it takes to renew all leases.
func (h *heartbeat) calls() int { return (h.renewQueue.grants + beatBatch - 1) / beatBatch }

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

// schedule sets the timer of the next beat. It never postpones a beat: a beat that comes too early
// finds nothing to do. The caller holds mu.
func (h *heartbeat) schedule() {
	if h.session.closed || h.beating { // beat schedules the next one when it ends
		return
	}
	var at time.Time
	if h.renewQueue.len > 0 {
		at = h.nextRenewal()
	}
	if len(h.pending) > 0 && (at.IsZero() || h.releaseAt.Before(at)) {
		at = h.releaseAt
	}
	if at.IsZero() || !h.timerAt.IsZero() && !at.Before(h.timerAt) {
		return
	}
	h.timerAt = at
	wait := max(0, time.Until(at))
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, h.beat)
	} else {
		h.timer.Reset(wait)
	}
}

// idle reports whether there is nothing to do. The caller holds mu.
func (h *heartbeat) idle() bool { return h.renewQueue.len == 0 && len(h.pending) == 0 }

// stop stops the timer. The caller holds mu.
func (h *heartbeat) stop() {
	if h.timer != nil {
		h.timer.Stop()
		h.timerAt = time.Time{}
	}
}

// stopSleepTimer ends the checks for sleep. The caller holds mu.
func (s *Session) stopSleepTimer() {
	if s.sleepTimer != nil {
		s.sleepTimer.Stop()
		s.sleepTimer = nil
	}
}

// retryWait returns the pause after a failed heartbeat. Several retries fit into a trust window.
// The random part keeps hosts that lost the store together from retrying together.
func (s *Session) retryWait() time.Duration {
	return s.ttl/10 + rand.N(s.ttl/20)
}

// beat makes one call to Extend for the leases that are due, and releases pending grants. It runs
// on a timer's goroutine, one beat at a time. After a failure, panic or slow answer of the store,
// the next beat still comes.
func (h *heartbeat) beat() {
	s := h.session
	s.mu.Lock()
	if s.closed || h.beating {
		s.mu.Unlock()
		return
	}
	h.beating = true
	h.beatDone = make(chan struct{})
	h.timerAt = time.Time{}
	started := time.Now()
	var pending []pendingRelease
	release := len(h.pending) > 0 && !h.releaseAt.After(started)
	if release {
		pending = slices.DeleteFunc(h.pending, func(p pendingRelease) bool { return started.After(p.expiresAt) })
		h.pending = nil
	}
	var batch []*Lease
	// Renew before the release: pending grants are released only if the store answers.
	if h.renewQueue.len > 0 && (release || !h.nextRenewal().After(started)) {
		batch = h.nextBatch(started)
	}
	s.mu.Unlock()

	exits := true // Hooks.Called may call runtime.Goexit
	defer func() { h.endBeat(pending, exits) }()
	if answered := len(batch) == 0 || h.renew(batch); answered {
		pending, _ = s.releasePending(s.life, pending)
	}
	exits = false
}

// endBeat schedules the next beat. Grants that are still pending wait for retryWait. So do leases
// that the beat did not reach because its goroutine exited.
func (h *heartbeat) endBeat(pending []pendingRelease, exits bool) {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	h.beating = false
	close(h.beatDone)
	if exits {
		h.note(errNoAnswer)
		now := time.Now()
		h.requeue(h.dueBy(now), now.Add(s.retryWait()))
	}
	if len(pending) > 0 {
		h.releaseAt = time.Now().Add(s.retryWait())
	}
	newer := h.pending
	h.pending = pending
	h.addPending(newer...)
	if s.closed || h.idle() {
		h.stop()
		if h.idle() && s.heartbeats[h.shard] == h { // its server may be gone permanently
			delete(s.heartbeats, h.shard)
		}
		return
	}
	h.schedule()
}

// dueBy returns the leases that are due at t. The caller holds mu.
func (h *heartbeat) dueBy(t time.Time) (due []*Lease) {
	for l := range h.renewQueue.all {
		if l.due.After(t) {
			break
		}
		due = append(due, l)
	}
	return due
}

// nextBatch returns the leases for the next call. The caller holds mu, and there is a lease to
// renew.
func (h *heartbeat) nextBatch(t time.Time) []*Lease {
	h.lastSent = t
	most, n := (h.renewQueue.grants+h.calls()-1)/h.calls(), 0
	batch := make([]*Lease, 0, min(most, h.renewQueue.len))
	for l := range h.renewQueue.all {
		batch = append(batch, l)
		if n += l.grants(); n >= most {
			break
		}
	}
	return batch
}

// renew calls Extend for the leases of a batch. It reports whether the store answered for all of
// them.
func (h *heartbeat) renew(batch []*Lease) bool {
	s := h.session
	grants := make([]driver.Grant, 0, len(batch))
	oldest := batch[0].sent.mono // no lock needed, because only this heartbeat writes it
	for _, l := range batch {
		grants = l.appendGrants(grants)
		oldest = earlier(oldest, l.sent.mono)
	}
	sent := now()
	late := oldest.Add(s.trust - s.trust/3) // start of the last third of a trust window
	timeout := s.storeTimeout
	if !sent.mono.Before(late) {
		timeout /= 2
	}
	results, err := s.calls.extend(s.life, timeout, s.ttl, grants)
	if err != nil && s.life.Err() != nil {
		return false // interrupted by Close, not a failure of the store
	}
	t := now()
	var ended []*Lease
	var noAnswer error // first error of a single lease
	renewed, unknown := make([]*Lease, 0, len(batch)), batch[:0]
	s.mu.Lock()
	for _, l := range batch {
		var r driver.Result
		var at driver.Grant // the grant that r describes
		if err == nil {
			r, at = l.result(results)
			results = results[l.grants():]
		}
		switch {
		case r.Outcome == driver.GrantOK:
			if l.renewed(t, sent, r.Info) {
				renewed = append(renewed, l)
			} else { // the trust window has closed, and expireLeases ends the lease
				h.renewQueue.remove(l)
				s.expireAt(t.mono)
			}
		case r.Outcome == driver.GrantLost:
			if l.end(leaseLost, &LostError{Name: at.Name, Slot: at.Slot, RevokedBy: r.RevokedBy}) {
				ended = append(ended, l)
			}
		case h.renewQueue.has(l): // after StopRenewing, an expiry is not a failure of the store
			why := err
			if why == nil {
				why = cmp.Or(r.Err, errNoAnswer)
			}
			l.unanswered(why)
			unknown = append(unknown, l)
			noAnswer = why
		}
	}
	s.expiryQueue.remove(renewed...)
	s.expiryQueue.insert(renewed...)
	next := sent.mono.Add(s.ttl / 3)
	if s.renewNowAt.After(sent.mono) {
		next = s.renewNowAt
	}
	// In the last third of a trust window, retry without a random pause, so that a store that works
	// again is noticed in time.
	retry := earlier(t.mono.Add(s.retryWait()), later(late, sent.mono.Add(s.storeTimeout/2)))
	h.requeue(unknown, earlier(next, later(retry, t.mono)))
	renewed = slices.DeleteFunc(renewed, func(l *Lease) bool { return !h.renewQueue.has(l) })
	h.requeue(renewed, next)
	for _, l := range ended {
		s.forget(l)
	}
	if err != nil {
		// While the store hangs, the trust windows of other due batches may close before these
		// batches are tried. Their leases, too, are then lost because the store is silent.
		for _, l := range h.dueBy(t.mono) {
			l.unanswered(err)
		}
	}
	answered := err == nil && len(unknown) == 0
	h.note(cmp.Or(err, noAnswer))
	if s.sharder != nil && !answered { // a lease may have moved to another shard, which may answer
		renewed = slices.Collect(h.renewQueue.all)
	}
	s.mu.Unlock()
	for _, l := range ended {
		l.cancelContext()
	}
	h.followShards(renewed)
	return answered && s.life.Err() == nil
}

// requeue sets a new due time for leases that are still renewed. The caller holds mu.
func (h *heartbeat) requeue(leases []*Lease, due time.Time) {
	h.renewQueue.remove(leases...)
	for _, l := range leases {
		l.due = due
	}
	h.renewQueue.insert(leases...)
}

// followShards moves leases to another heartbeat if their names have moved to its shard.
func (h *heartbeat) followShards(leases []*Lease) {
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
		if h.renewQueue.has(l) { // otherwise it has ended
			h.renewQueue.remove(l)
			s.heartbeat(shard).insert(l)
		}
	}
}

// releasePending releases grants in batches. StoreTimeout limits each batch and ctx limits all. It
// returns the grants whose outcome is still unknown, and an error if there are any.
func (s *Session) releasePending(ctx context.Context, pending []pendingRelease) ([]pendingRelease, error) {
	var left []pendingRelease
	var unknown error
	for len(pending) > 0 {
		batch := make([]driver.Grant, min(len(pending), beatBatch))
		for i := range batch {
			batch[i] = pending[i].Grant
		}
		ctx, cancel := context.WithTimeout(ctx, s.storeTimeout)
		results, err := s.calls.release(ctx, batch)
		cancel()
		if err != nil {
			return append(left, pending...), err
		}
		for i, r := range results {
			if r.Outcome == driver.GrantUnknown {
				left, unknown = append(left, pending[i]), cmp.Or(r.Err, errNoAnswer)
			}
		}
		pending = pending[len(batch):]
	}
	return left, unknown
}
