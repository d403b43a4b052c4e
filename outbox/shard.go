package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// minPause is how soon a relay polls again after it has found a message, if the database does
	// not support notifications.
	minPause = minPollInterval
	// returnGrace is how long a sink has to return after its context has ended.
	returnGrace = 5 * time.Second
	// maxActive bounds the sink calls of a shard for all topics together.
	maxActive = 2_000
	// maxHeld bounds the results of a shard that wait for locked rows. Each result is kept in
	// memory, and each answer of Due leaves out its message.
	maxHeld = 5_000
	// While topics are full, the shard polls for messages of other topics at most every minBeside,
	// and rests for besideShare times as long as the last such call took, because the call may have
	// to skip all messages of the full topics.
	minBeside   = 50 * time.Millisecond
	besideShare = 9
	// termCheckInterval is how often a draining shard checks whether it still leads.
	termCheckInterval = 100 * time.Millisecond
)

var (
	errDraining = errors.New("outbox: the relay is shutting down")
	errTimeout  = errors.New("outbox: the sink took longer than DeliverTimeout")
)

// A shard delivers the messages of one shard for one term of its leader. All its state belongs to
// the goroutine of run. Other goroutines post functions to that goroutine.
type shard struct {
	relay  *Relay
	term   *leader.Term
	layout store.Layout
	base   context.Context // parent of the contexts of deliveries
	end    context.CancelCauseFunc
	posts  chan func()
	gone   chan struct{} // closed when run has returned
	wakes  chan struct{}

	lanes    map[laneID]*lane
	topics   map[string]*topic
	active   int // sink calls in progress, for all topics
	unmarked int // results that are not written yet
	held     int // unmarked results whose rows are locked

	look     bool      // there may be new messages
	besideAt time.Time // when to poll next for messages of topics that are not full
	after    string    // key after which the current search continues; "" without a search
	fetching bool
	reading  sync.WaitGroup
	batch    *answers.Batch
	retryAt  time.Time // no call before this time, because a call failed or found nothing
	callWait time.Duration
	pause    time.Duration    // before the next poll while notifications do not work
	changed  bool             // whether the layout has changed
	wary     bool             // the previous relay died: see suspects.go
	first    []start          // deliveries that must be recorded before they begin
	noting   bool             // deliveries are being recorded
	notNoted map[store.ID]int // Crashes of messages that were given back because recording them failed
	stopped  <-chan struct{}
}

// A laneID is a key, or a message without a key.
type laneID struct {
	key string
	seq int64 // 0 for a key
}

// A topic has its own places, so that a receiver that hangs delays only its own topics.
type topic struct {
	active int     // calls of its sink in progress
	ready  []*lane // lanes whose next message has this topic, first come, first served
	left   bool    // the latest Due left out messages of the topic because it is full
}

// A lane holds the messages of one key from when they are read until all their results are written.
// They are delivered one after the other. While a lane exists, Due leaves out its key.
type lane struct {
	id       laneID
	waiting  []message
	busy     bool // a message is being delivered
	called   bool // the sink has not returned, even if its delivery has already failed
	unmarked int
	verdict  bool // the previous message is dead, but its result is not written yet
	more     bool // Due may have left out messages of the key
}

func idOf(m message) laneID {
	if m.Key == "" {
		return laneID{seq: m.Seq}
	}
	return laneID{key: m.Key}
}

func newShard(r *Relay, layout store.Layout, term *leader.Term) *shard {
	s := &shard{relay: r, term: term, layout: layout, posts: make(chan func(), 64), gone: make(chan struct{}),
		wakes: make(chan struct{}, 1), lanes: map[laneID]*lane{}, topics: map[string]*topic{},
		notNoted: map[store.ID]int{}, callWait: lifecycle.MinWait, pause: minPause, wary: term.PreviousExpired()}
	s.batch = answers.NewBatch(r.config.BatchSize, r.config.CallTimeout)
	s.base, s.end = context.WithCancelCause(context.Background())
	return s
}

// wake makes the shard poll for messages immediately.
func (s *shard) wake() {
	select {
	case s.wakes <- struct{}{}:
	default: // a wake-up is pending
	}
}

// post makes run call f. It does nothing if run has returned.
func (s *shard) post(f func()) {
	select {
	case s.posts <- f:
	case <-s.gone:
	}
}

// run delivers until ctx ends or the layout changes, and then waits for deliveries in progress.
func (s *shard) run(ctx context.Context) {
	defer s.reading.Wait() // wait for abandoned reads, so that no call outlives Run
	defer close(s.gone)
	defer s.end(nil)
	s.stopped = ctx.Done()
	reads, endReads := context.WithCancel(s.relay.calls.Life())
	defer endReads()
	timer := time.NewTimer(0) // poll immediately
	defer timer.Stop()
	for ctx.Err() == nil && !s.changed {
		s.deliver()
		s.fetch(reads, timer)
		select {
		case <-ctx.Done():
		case f := <-s.posts:
			f()
			s.takePosts()
		case <-s.wakes:
			s.look, s.pause = true, minPause
		case <-timer.C:
			s.look = s.look || s.after == "" // a search in progress continues, because it finds all due messages
		}
	}
	endReads()
	s.drain()
}

// takePosts calls the other posted functions, so that one call of Due fills all free places instead
// of one call for each place. Before it returns, it yields so that deliveries that have ended but
// wait for a processor can post, too. It always returns, because no delivery begins in the
// meantime.
func (s *shard) takePosts() {
	for yielded := false; ; {
		select {
		case f := <-s.posts:
			f()
			yielded = false
		default:
			if yielded {
				return
			}
			runtime.Gosched()
			yielded = true
		}
	}
}

// deliver starts deliveries while there is room.
func (s *shard) deliver() {
	c := s.relay.config
	defer s.begin()
	for name, t := range s.topics {
		for len(t.ready) > 0 && t.active < c.MaxDeliveries && s.active < maxActive &&
			s.unmarked-s.held < 4*max(c.BatchSize, c.MaxDeliveries) && s.held < maxHeld {
			if !s.term.Valid() { // also if the process has just woken: another relay may lead
				return
			}
			l := t.ready[0]
			t.ready = t.ready[1:]
			m := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.busy, l.called = true, true
			s.active++
			t.active++
			switch d := (start{l, m.Pending, name}); {
			case m.Fault != "" || c.killed(m.Pending): // no sink is called
				go s.start(d)
			case m.Crashes > 0:
				go s.startAlone(d)
			case m.wary:
				s.first = append(s.first, d)
			default:
				go s.start(d)
			}
		}
		if t.left && !s.full(t) {
			t.left, s.look = false, true
		}
		if t.active == 0 && len(t.ready) == 0 && !t.left {
			delete(s.topics, name) // topics may come and go
		}
	}
}

// full reports whether a topic already has as many messages as it can deliver soon.
func (s *shard) full(t *topic) bool { return len(t.ready) >= s.relay.config.MaxDeliveries }

// makeReady queues a lane for a place of its next message's topic, if that message may be delivered
// now.
func (s *shard) makeReady(l *lane) {
	if len(l.waiting) == 0 || l.busy || l.called || l.verdict {
		return
	}
	name := l.waiting[0].Topic
	t := s.topics[name]
	if t == nil {
		t = &topic{}
		s.topics[name] = t
	}
	t.ready = append(t.ready, l)
}

// forget drops the waiting messages of a lane. Due returns them again when they may be delivered.
func (s *shard) forget(l *lane) {
	if len(l.waiting) > 0 {
		if t := s.topics[l.waiting[0].Topic]; t != nil {
			t.ready = slices.DeleteFunc(t.ready, func(r *lane) bool { return r == l })
		}
	}
	l.waiting, l.more = nil, true
}

// delivered handles the result of a delivery.
func (s *shard) delivered(l *lane, a attempt) {
	l.busy = false
	if a.abandoned {
		s.forget(l)
		return
	}
	delete(s.notNoted, a.message.ID)
	switch {
	case a.result.Outcome == store.OutcomeOK:
	case a.result.Outcome != store.OutcomeTransient && s.relay.config.OnDead == DeadContinue:
		// Until the verdict is written, it may be lost with this relay, and the next relay may
		// deliver the message after all. So the later messages of its key must not be delivered
		// yet.
		l.verdict = true
	default:
		s.forget(l)
	}
	l.unmarked++
	s.unmarked++
	if a.settled == nil {
		a.settled = func() {}
	}
	held := false // its row is locked; used only by run's goroutine
	s.relay.marker.put(a, func(counts bool) {
		a.settled()
		s.post(func() {
			if held {
				s.held--
			}
			s.marked(l, counts)
		})
	}, func() {
		a.settled()
		s.post(func() { held = true; s.held++ })
	})
}

// returned handles the return of a sink, for which the next message of its key has waited.
func (s *shard) returned(l *lane, of string) {
	s.active--
	s.topics[of].active--
	l.called = false
	s.makeReady(l)
	s.settle(l)
}

// marked is called when a result has been written.
func (s *shard) marked(l *lane, counts bool) {
	l.unmarked--
	s.unmarked--
	if !counts { // another relay has delivered the message
		s.forget(l)
	}
	if l.verdict && l.unmarked == 0 {
		l.verdict = false
		s.makeReady(l)
	}
	s.settle(l)
}

// settle removes a lane that has nothing left to do.
func (s *shard) settle(l *lane) {
	if l.busy || l.called || l.unmarked > 0 || len(l.waiting) > 0 {
		return
	}
	delete(s.lanes, l.id)
	s.look = s.look || l.more
}

// fetch calls Due if there may be messages and there is room for them.
func (s *shard) fetch(ctx context.Context, timer *time.Timer) {
	c := s.relay.config
	if !s.look && s.after == "" || s.fetching {
		return
	}
	full := s.fullTopics()
	if len(full) > 0 && len(full) == len(s.relay.topics) { // there are no other topics
		return
	}
	notBefore := s.retryAt
	if len(full) > 0 && s.besideAt.After(notBefore) {
		notBefore = s.besideAt
	}
	if wait := time.Until(notBefore); wait > 0 {
		timer.Reset(wait)
		return
	}
	request := store.DueRequest{Layout: s.layout, Shard: s.term.Slot(), Limit: s.batch.Limit(), Topics: s.relay.topics,
		FullTopics: full, StopOnDead: c.OnDead == DeadStop, After: s.after}
	for id, l := range s.lanes {
		l.more = true
		if id.key == "" {
			request.IDs = append(request.IDs, id.seq)
		} else {
			request.Keys = append(request.Keys, id.key)
		}
	}
	if s.after == "" { // wake-ups during a search start the next search
		s.look = false
	}
	s.fetching = true
	began := time.Now()
	s.reading.Go(func() {
		due, err := callFor(ctx, s, opDue, func(ctx context.Context) (store.Due, error) {
			return s.relay.store.Due(ctx, request)
		})
		took := time.Since(began)
		s.post(func() {
			if len(full) > 0 {
				s.besideAt = time.Now().Add(max(minBeside, besideShare*took))
			}
			s.fetched(timer, due, took, err)
			if err == nil && len(full) == 0 && !due.Full && due.After == "" {
				s.wary = false // all messages that the previous relay may have begun have been read
			}
		})
	})
}

// fullTopics returns the topics that Due must leave out, and marks them as left out.
func (s *shard) fullTopics() (full []string) {
	for name, t := range s.topics {
		if s.full(t) {
			t.left = true
			full = append(full, name)
		}
	}
	return full
}

// fetched handles the answer of Due.
func (s *shard) fetched(timer *time.Timer, due store.Due, took time.Duration, err error) {
	s.fetching = false
	c := s.relay.config
	s.batch.Ended(took, err)
	if err != nil {
		s.retryAt = time.Now().Add(s.callWait/2 + rand.N(s.callWait))
		s.callWait = min(2*s.callWait, lifecycle.MaxWait)
		timer.Reset(time.Until(s.retryAt))
		return
	}
	s.callWait, s.after = lifecycle.MinWait, due.After
	if due.Layout != s.layout {
		s.changed = true
		return
	}
	for _, pending := range due.Messages {
		m := message{pending, s.wary}
		if crashes, ok := s.notNoted[m.ID]; ok {
			m.wary = true
			if m.Crashes == crashes+1 { // the failed call did record the message, but this relay has not died
				m.Crashes = crashes
			}
		}
		id := idOf(m)
		l := s.lanes[id]
		if l == nil {
			l = &lane{id: id}
			s.lanes[id] = l
		}
		first := len(l.waiting) == 0
		l.waiting = append(l.waiting, m)
		if first {
			s.makeReady(l)
		}
		// If a message was tried before, Due has left out the later messages of its key. If it was
		// requeued, NextIn does not cover a later message that waits for its next attempt.
		l.more = l.more || due.Full || due.More || m.Attempts > 0
	}
	switch {
	case len(due.Messages) > 0:
		s.pause = minPause
	case s.after != "":
		s.retryAt = time.Now().Add(took) // a search of many calls rests half of the time
	}
	if due.Full {
		s.look = true
		return
	}
	wait := s.pause
	if s.relay.listener.listening() {
		wait = loop.Jittered(c.IdleDelay, idleJitter)
	} else {
		s.pause = min(2*s.pause, c.PollInterval)
	}
	if due.NextIn >= 0 {
		wait = min(wait, due.NextIn)
	}
	timer.Reset(wait)
}

// drain waits for deliveries and then for their results to be written. It ends the contexts of
// deliveries after DrainTimeout, or immediately if the term is over.
func (s *shard) drain() {
	c := s.relay.config
	for _, d := range s.first {
		s.given(d)
	}
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
				return // the marker still writes the remaining results
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
