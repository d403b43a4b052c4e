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
	// minPause is how soon a relay looks again after it has found a message, if the database
	// cannot tell of the next one.
	minPause = minPollInterval
	// returnGrace is how long a sink has to return after its context has ended.
	returnGrace = 5 * time.Second
	// maxActive bounds the calls of sinks of all topics of a shard together.
	maxActive = 2_000
	// maxHeld bounds the results of a shard that wait for locked rows. Each is kept in memory, and
	// its message is left out of each answer of Due.
	maxHeld = 5_000
	// While topics are full, the shard looks for messages of others at most this often, and leaves
	// the database this many times as long without such a call as the call took: it may have to
	// search behind all that waits for the full ones.
	minBeside   = 50 * time.Millisecond
	besideShare = 9
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
	topics   map[string]*topic
	active   int // calls of sinks, of all topics
	unmarked int // results that are not written
	held     int // of them, because their rows are locked

	look     bool      // there may be messages
	besideAt time.Time // when to look next for messages beside those of full topics
	after    string    // the key after which the search that is under way goes on; "": there is none
	fetching bool
	reading  sync.WaitGroup
	batch    *answers.Batch
	retryAt  time.Time // not before, because a call failed, or found nothing
	callWait time.Duration
	pause    time.Duration    // before the next look, while nobody tells of messages
	changed  bool             // the layout is another one
	wary     bool             // the relay before this one died: see suspects.go
	first    []start          // deliveries that are to be written down before they begin
	noting   bool             // some are being written down
	notNoted map[store.ID]int // Crashes of those given back, because a call to write them down failed
	stopped  <-chan struct{}
}

// A laneID is a key, or a message without one.
type laneID struct {
	key string
	seq int64 // 0 if there is a key
}

// A topic has places of its own, so that a receiver that hangs costs only its own topics.
type topic struct {
	active int     // calls of its sink
	ready  []*lane // whose next message is of this topic, first come, first served
	left   bool    // Due was told that the topic is full, and left messages of it out
}

// A lane has the messages of one key that were read, until all their results are written. They are
// delivered one after the other. While a lane exists, Due leaves its key out.
type lane struct {
	id       laneID
	waiting  []message
	busy     bool // one is being delivered
	called   bool // the sink has not returned, also if its delivery has failed meanwhile
	unmarked int
	verdict  bool // the message before is dead, and that is not written yet
	more     bool // the database may have left messages of the key out
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
	defer s.reading.Wait() // of what has been cut off, so that no call outlives Run
	defer close(s.gone)
	defer s.end(nil)
	s.stopped = ctx.Done()
	reads, endReads := context.WithCancel(s.relay.calls.Life())
	defer endReads()
	timer := time.NewTimer(0) // looks at once
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
			s.look = s.look || s.after == "" // a search goes on, and looks for all that is due
		}
	}
	endReads()
	s.drain()
}

// takePosts calls what else has been posted, so that one call of Due fills all places that have
// become free, and not a call each. Deliveries that have ended may only wait for a processor: they
// go first. It ends, because meanwhile no delivery begins.
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
			if !s.term.Valid() { // also when the process has just woken: another relay may lead
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

// full reports whether a topic has as many messages as it can soon deliver.
func (s *shard) full(t *topic) bool { return len(t.ready) >= s.relay.config.MaxDeliveries }

// makeReady queues a lane for a place of the topic of its next message, if it has one that may be
// delivered now.
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

// forget takes from a lane what waits in it: Due returns it when it may be delivered.
func (s *shard) forget(l *lane) {
	if len(l.waiting) > 0 {
		if t := s.topics[l.waiting[0].Topic]; t != nil {
			t.ready = slices.DeleteFunc(t.ready, func(r *lane) bool { return r == l })
		}
	}
	l.waiting, l.more = nil, true
}

// delivered takes the result of a delivery.
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
		// Before the verdict is written it may be lost with this relay, and the next one may
		// deliver the message after all: the later ones of its key are not to be delivered before.
		l.verdict = true
	default:
		s.forget(l)
	}
	l.unmarked++
	s.unmarked++
	if a.settled == nil {
		a.settled = func() {}
	}
	held := false // its row is locked. Of run
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

// returned is told that a sink has returned. Until then its key has no other delivery here.
func (s *shard) returned(l *lane, of string) {
	s.active--
	s.topics[of].active--
	l.called = false
	s.makeReady(l)
	s.settle(l)
}

// marked is told that a result was written.
func (s *shard) marked(l *lane, counts bool) {
	l.unmarked--
	s.unmarked--
	if !counts { // another relay delivers this key
		s.forget(l)
	}
	if l.verdict && l.unmarked == 0 {
		l.verdict = false
		s.makeReady(l)
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
func (s *shard) fetch(ctx context.Context, timer *time.Timer) {
	c := s.relay.config
	if !s.look && s.after == "" || s.fetching {
		return
	}
	full := s.fullTopics()
	if len(full) > 0 && len(full) == len(s.relay.topics) { // nothing else is asked for
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
	if s.after == "" { // what comes during a search is looked for by the next one
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
				s.wary = false // all was read that the relay before may have begun
			}
		})
	})
}

// fullTopics returns the topics that Due is to leave out, and notes that it does.
func (s *shard) fullTopics() (full []string) {
	for name, t := range s.topics {
		if s.full(t) {
			t.left = true
			full = append(full, name)
		}
	}
	return full
}

// fetched takes the answer to fetch.
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
			if m.Crashes == crashes+1 { // the call has written that after all, and this relay is alive
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
		// Behind one that was tried before, the later ones of its key were left out. Behind one
		// that was requeued, NextIn says nothing of one that waits for its next attempt.
		l.more = l.more || due.Full || due.More || m.Attempts > 0
	}
	switch {
	case len(due.Messages) > 0:
		s.pause = minPause
	case s.after != "":
		s.retryAt = time.Now().Add(took) // a search of many calls leaves the database half of the time
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

// drain waits for deliveries, and then for their results to be written. It ends the contexts of
// deliveries after DrainTimeout, or at once if the term is over.
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
