package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// minPause is how soon a relay looks again after it has found a message, if the database
	// cannot tell of the next one.
	minPause = minPollInterval
	// The waits after calls that failed.
	minCallWait = 100 * time.Millisecond
	maxCallWait = 2 * time.Second
	// returnGrace is how long a sink has to return after its context has ended.
	returnGrace = 5 * time.Second
	// termCheckInterval is how often a shard that drains asks whether it still leads.
	termCheckInterval = 100 * time.Millisecond
)

var (
	errDraining = errors.New("outbox: the relay is shutting down")
	errTimeout  = errors.New("outbox: the sink took longer than DeliverTimeout")
)

// A shard delivers the messages of one shard, for one term of its leader. All its state belongs to
// the goroutine of run; others post functions to it.
type shard struct {
	relay  *Relay
	term   *leader.Term
	layout store.Layout
	base   context.Context // of deliveries
	end    context.CancelCauseFunc
	posts  chan func()
	gone   chan struct{} // run has returned
	wakes  chan struct{}

	lanes    map[laneID]*lane
	ready    []*lane // with a message to deliver, first come, first served
	active   int     // calls of sinks
	unmarked int     // results that are not written

	look     bool   // there may be messages
	after    string // the key after which the search that is under way goes on; "": there is none
	fetching bool
	retryAt  time.Time // not before, because a call failed, or found nothing
	callWait time.Duration
	pause    time.Duration // before the next look, while nobody tells of messages
	changed  bool          // the layout is another one
}

// A laneID is a key, or a message without one.
type laneID struct {
	key string
	seq int64 // 0 if there is a key
}

// A lane has the messages of one key that were read, until all their results are written. They are
// delivered one after the other. While a lane exists, Due leaves its key out.
type lane struct {
	id       laneID
	waiting  []store.Pending
	busy     bool // one is being delivered
	called   bool // the sink has not returned, also if its delivery has failed meanwhile
	unmarked int
	more     bool // the database may have left messages of the key out
}

func idOf(m store.Pending) laneID {
	if m.Key == "" {
		return laneID{seq: m.Seq}
	}
	return laneID{key: m.Key}
}

func newShard(r *Relay, layout store.Layout, term *leader.Term) *shard {
	s := &shard{relay: r, term: term, layout: layout, posts: make(chan func(), 64), gone: make(chan struct{}),
		wakes: make(chan struct{}, 1), lanes: map[laneID]*lane{}, callWait: minCallWait, pause: minPause}
	s.base, s.end = context.WithCancelCause(context.Background())
	return s
}

// wake has the shard look for messages now.
func (s *shard) wake() {
	select {
	case s.wakes <- struct{}{}:
	default: // it has been woken
	}
}

// post has run call f, unless it has returned.
func (s *shard) post(f func()) {
	select {
	case s.posts <- f:
	case <-s.gone:
	}
}

// run delivers until ctx ends or the layout is another one, and then waits for what is under way.
func (s *shard) run(ctx context.Context) {
	defer close(s.gone)
	defer s.end(nil)
	timer := time.NewTimer(0) // looks at once
	defer timer.Stop()
	for ctx.Err() == nil && !s.changed {
		s.deliver()
		s.fetch(timer)
		select {
		case <-ctx.Done():
		case f := <-s.posts:
			f()
			s.takePosts()
		case <-s.wakes:
			s.look, s.pause = true, minPause
		case <-timer.C:
			s.look = s.look || s.after == "" // a search goes on, and looks for all that is due
		}
	}
	s.drain()
}

// takePosts calls what else has been posted, so that one call of Due fills all places that have
// become free, and not a call each. It ends, because meanwhile no delivery begins.
func (s *shard) takePosts() {
	for {
		select {
		case f := <-s.posts:
			f()
		default:
			return
		}
	}
}

// deliver starts deliveries while there is room.
func (s *shard) deliver() {
	c := s.relay.config
	for len(s.ready) > 0 && s.active < c.MaxDeliveries && s.unmarked < 4*max(c.BatchSize, c.MaxDeliveries) {
		l := s.ready[0]
		s.ready = s.ready[1:]
		m := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.busy, l.called = true, true
		s.active++
		go s.relay.deliver(s.base, m, func(a attempt) { s.post(func() { s.delivered(l, a) }) },
			func() { s.post(func() { s.returned(l) }) })
	}
}

// delivered takes the result of a delivery.
func (s *shard) delivered(l *lane, a attempt) {
	l.busy = false
	if a.abandoned {
		l.waiting, l.more = nil, true
		return
	}
	goesOn := a.result.Outcome == store.OutcomeOK ||
		a.result.Outcome != store.OutcomeTransient && s.relay.config.OnDead == DeadContinue
	if !goesOn {
		l.waiting, l.more = nil, true // Due returns them when they may be delivered
	}
	l.unmarked++
	s.unmarked++
	s.relay.marker.put(a, func(counts bool) { s.post(func() { s.marked(l, counts) }) })
}

// returned is told that a sink has returned. Until then its key has no other delivery here.
func (s *shard) returned(l *lane) {
	s.active--
	l.called = false
	if len(l.waiting) > 0 {
		s.ready = append(s.ready, l)
	}
	s.settle(l)
}

// marked is told that a result was written.
func (s *shard) marked(l *lane, counts bool) {
	l.unmarked--
	s.unmarked--
	if !counts { // another relay delivers this key
		s.ready = slices.DeleteFunc(s.ready, func(r *lane) bool { return r == l })
		l.waiting, l.more = nil, true
	}
	s.settle(l)
}

// settle takes a lane away that has nothing left.
func (s *shard) settle(l *lane) {
	if l.busy || l.called || l.unmarked > 0 || len(l.waiting) > 0 {
		return
	}
	delete(s.lanes, l.id)
	s.look = s.look || l.more
}

// fetch asks for messages, if there may be some and there is room for them.
func (s *shard) fetch(timer *time.Timer) {
	c := s.relay.config
	if !s.look && s.after == "" || s.fetching || len(s.ready) >= c.MaxDeliveries {
		return
	}
	if wait := time.Until(s.retryAt); wait > 0 {
		timer.Reset(wait)
		return
	}
	request := store.DueRequest{Layout: s.layout, Shard: s.term.Slot(), Limit: c.BatchSize, Topics: s.relay.topics,
		StopOnDead: c.OnDead == DeadStop, After: s.after}
	for id, l := range s.lanes {
		l.more = true
		if id.key == "" {
			request.IDs = append(request.IDs, id.seq)
		} else {
			request.Keys = append(request.Keys, id.key)
		}
	}
	if s.after == "" { // what comes during a search is looked for by the next one
		s.look = false
	}
	s.fetching = true
	began := time.Now()
	go func() {
		due, err := call(s.relay.calls, opDue, func(ctx context.Context) (store.Due, error) {
			return s.relay.store.Due(ctx, request)
		})
		took := time.Since(began)
		s.post(func() { s.fetched(timer, due, took, err) })
	}()
}

// fetched takes the answer to fetch.
func (s *shard) fetched(timer *time.Timer, due store.Due, took time.Duration, err error) {
	s.fetching = false
	c := s.relay.config
	if err != nil {
		s.retryAt = time.Now().Add(s.callWait/2 + rand.N(s.callWait))
		s.callWait = min(2*s.callWait, maxCallWait)
		timer.Reset(time.Until(s.retryAt))
		return
	}
	s.callWait, s.after = minCallWait, due.After
	if due.Layout != s.layout {
		s.changed = true
		return
	}
	full := len(due.Messages) >= c.BatchSize
	for _, m := range due.Messages {
		id := idOf(m)
		l := s.lanes[id]
		if l == nil {
			l = &lane{id: id}
			s.lanes[id] = l
		}
		if len(l.waiting) == 0 {
			s.ready = append(s.ready, l)
		}
		l.waiting = append(l.waiting, m)
		// Behind one that was tried before, the later ones of its key were left out. Behind one
		// that was requeued, NextIn says nothing of one that waits for its next attempt.
		l.more = l.more || full || due.More || m.Attempts > 0
	}
	switch {
	case len(due.Messages) > 0:
		s.pause = minPause
	case s.after != "":
		s.retryAt = time.Now().Add(took) // a search of many calls leaves the database half of the time
	}
	if full {
		s.look = true
		return
	}
	wait := s.pause
	if s.relay.listener.hears() {
		wait = loop.Jittered(c.IdleDelay, idleJitter)
	} else {
		s.pause = min(2*s.pause, c.PollInterval)
	}
	if due.NextIn >= 0 {
		wait = min(wait, due.NextIn)
	}
	timer.Reset(wait)
}

// drain waits for deliveries, and then for their results to be written. It ends the contexts of
// deliveries after DrainTimeout, or at once if the term is over.
func (s *shard) drain() {
	c := s.relay.config
	timeout := time.NewTimer(c.DrainTimeout)
	defer timeout.Stop()
	termCheck := time.NewTicker(termCheckInterval)
	defer termCheck.Stop()
	var giveUp <-chan time.Time
	endWith := func(cause error) {
		if s.base.Err() == nil {
			s.end(cause)
			giveUp = time.After(returnGrace + time.Second)
		}
	}
	for s.active > 0 || s.unmarked > 0 {
		if !s.term.Valid() {
			endWith(dlock.ErrLost)
			if s.active == 0 {
				return // the relay goes on to write the remaining results
			}
		}
		select {
		case f := <-s.posts:
			f()
		case <-termCheck.C:
		case <-timeout.C:
			endWith(errDraining)
		case <-giveUp:
			return // Run names the sinks
		}
	}
}
