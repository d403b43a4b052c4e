package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// maxAttempts bounds the calls to the store that are under way; further ticks wait in line.
	maxAttempts = 64
	// maxSleep bounds the sleep of the scheduling goroutine, so that a step of the wall clock or a
	// suspended machine delays a tick by no more than that.
	maxSleep = 10 * time.Second
	// stalled is how far the scheduling goroutine may be behind its own plan before Live says so.
	stalled = 10 * time.Second
)

// A Scheduler runs the timers of one host. Its methods may be called from any goroutine.
type Scheduler struct {
	config   Config
	log      *lineLog
	registry *registry
	store    *storeWatch    // nil: no store
	session  *dlock.Session // nil: no store
	metrics  *metrics       // nil: none
	ledger   ledger

	wake    chan struct{} // the heap has an earlier item
	prodded chan struct{} // the store is back: the prober should look at once
	born    time.Time
	fired   time.Time    // when the heap was last looked at; the scheduling goroutine's own, as the next two
	shown   time.Time    // what the wall clock showed then
	batch   [64]dueItem  // what has come due, so that many ticks a moment need not take the lock one by one
	theirs  []dueItem    // the same, of what the user's code decides about
	wakeBy  atomic.Int64 // when the scheduling goroutine means to be awake, since born; 0: it does not run

	mu            sync.Mutex
	base          context.Context // of all runs: the values of Run's context, cancelled when draining takes too long
	dropped       int             // items of the heap that are of timers which were removed; roughly
	heap          tickHeap
	attempts      int     // under way
	starts        []start // of the batch at hand
	queue         queue   // who waits for an attempt to end
	remarked      struct{ faults, lost, ended, adopted few }
	without       int  // runs that started without the store since it last answered
	given         bool // Run has given up on the runs that are left
	breaker       breaker
	servers       map[string]*breaker // of a store of several servers, by what dlock.Sharder says; see shards.go
	quarantine    time.Time           // until when the store grants nothing, as it said
	ownFault      error               // what the store finds wrong with what the hosts keep there for themselves
	auditing      bool
	warned        map[string]time.Time // when each warning of an audit was last logged
	greeting      bool                 // Run waits for the store's first answer
	degraded      int                  // runs that go on without the store
	hosts         int                  // that were last seen to share the store, this one included; 0: not known
	probed        bool                 // the store has been asked once, whatever it said
	heardVersion  int64                // version of the overrides that this host has heard of
	learntVersion int64                // version that it has read
	pauses        bool                 // a timer may be paused

	skew atomic.Int64 // of this host's clock; for tests
}

// New checks the configuration and the timers, and reports all faults at once, each naming the
// timer, the field, the value and how to mend it. It starts nothing and does not call the store. It
// logs the limits of each timer at Info, with what was left out filled in; of more than twenty
// timers those that have the same limits share a line, and each has its own at Debug.
func New(config Config, timers ...Timer) (*Scheduler, error) {
	config = config.withDefaults()
	err := config.check()
	s := &Scheduler{
		config:   config,
		log:      newLineLog(config.Logger.Handler()),
		registry: newRegistry(),
		wake:     make(chan struct{}, 1),
		prodded:  make(chan struct{}, 1),
		born:     time.Now(),
	}
	if config.Lock == nil {
		s.hosts = 1
	}
	var leaseErr error
	if config.Lock == nil {
		leaseErr = config.lease().Validate()
	} else {
		s.store = newStoreWatch(s, config.Lock)
		options := config.lease()
		options.Hooks.Called = s.store.called
		s.session, leaseErr = dlock.NewSession(config.Lock, options)
	}
	if leaseErr != nil {
		err = errors.Join(err, fmt.Errorf("timer: Config: %w", leaseErr))
	}
	entries, registerErr := s.register(timers)
	err = errors.Join(err, registerErr)
	if err != nil {
		return nil, err
	}
	if config.Registerer != nil {
		s.ledger.metered = true
		s.metrics = newMetrics(s)
		if s.store != nil {
			s.metrics.ofStore(s.store)
		}
		if err := config.Registerer.Register(s.metrics); err != nil {
			return nil, fmt.Errorf("timer: Config.Registerer: %w: give each scheduler its own registry, or wrap both with prometheus.WrapRegistererWith", err)
		}
	}
	s.logRegistered(entries)
	return s, nil
}

// poke wakes the scheduling goroutine.
func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// loop is the one goroutine that schedules. It returns when until is closed.
func (s *Scheduler) loop(until <-chan struct{}) {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		wait := s.fire(until)
		s.awakeIn(wait)
		timer.Reset(wait)
		select {
		case <-until:
			return
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// awakeIn says when the scheduling goroutine will show up again, for Live.
func (s *Scheduler) awakeIn(wait time.Duration) { s.wakeBy.Store(int64(time.Since(s.born) + wait)) }

// now is the time by which ticks come due.
func (s *Scheduler) now() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }

// fire dispatches what is due and returns how long nothing else is. More may come due than it can
// dispatch, so it shows that it is alive at every item, and looks for its end at every batch.
func (s *Scheduler) fire(until <-chan struct{}) time.Duration {
	before, shown := s.fired, s.shown
	s.fired, s.shown = time.Now(), s.now().Round(0)
	if !before.IsZero() && steppedBack(s.fired.Sub(before), s.shown.Sub(shown)) {
		s.replan(s.shown)
	}
	for {
		select {
		case <-until:
			return 0
		default:
		}
		ours, theirs, now, wait := s.takeDue()
		if len(ours)+len(theirs) == 0 {
			return wait
		}
		s.dispatch(ours, now)
		for i := range theirs {
			select {
			case <-until:
				s.putBack(theirs[i:])
				return 0
			default:
			}
			s.dispatch(theirs[i:i+1], later(now, s.now()))
		}
	}
}

// dispatch sends what is due on its way.
func (s *Scheduler) dispatch(batch []dueItem, now time.Time) {
	s.awakeIn(0)
	// Schedules and blackouts may be the user's code: they run without the lock, because they may
	// call us.
	for i := range batch {
		batch[i].ask(s, now)
	}
	s.lock()
	for i := range batch {
		s.come(&batch[i])
	}
	starts := slices.Clone(s.starts)
	clear(s.starts)
	s.starts = s.starts[:0]
	s.unlock()
	if len(starts) > 0 {
		go s.runAll(starts)
	}
	clear(batch)
}

// A dueItem is an item of the heap that is due, and what the user's code says about it.
type dueItem struct {
	item
	tick   time.Time // zero: the schedule failed, and is to be asked again
	due    time.Time // the tick that came due last; zero: none
	coming coming    // of a timer's next tick
	dark   error     // of a tick that is tried later than it was due
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// theirs reports whether the user's code decides about a timer. It may take long, and then nobody
// else is to wait for it: what is due at the same moment goes first, and each of theirs is sent on
// its way by itself.
func (e *entry) theirs(s *Scheduler) bool {
	_, ours := e.timer.Schedule.(schedule.Interval)
	return !ours || len(e.timer.Blackouts) > 0 || len(s.config.Blackouts) > 0
}

// takeDue takes some items that are due from the heap, or returns how long none is.
func (s *Scheduler) takeDue() (ours, theirs []dueItem, now time.Time, wait time.Duration) {
	s.lock()
	defer s.unlock()
	now, wait = s.now(), maxSleep // once the lock is there, which may take a while
	n := 0
	for n < len(s.batch) && len(s.heap) > 0 {
		if when := time.UnixMicro(s.heap[0].when); when.After(now) {
			wait = min(when.Sub(now), maxSleep)
			break
		}
		it := s.heap.pop()
		switch {
		case it.again != nil:
			it.e.later--
		case it.e.gone.Load():
			s.dropped--
			continue
		}
		s.batch[n].item = it
		n++
	}
	ours, theirs = s.batch[:0], s.theirs[:0]
	for i := range s.batch[:n] {
		d := dueItem{item: s.batch[i].item}
		if d.e.next != 0 {
			d.tick = time.UnixMicro(d.e.next)
		} else if d.e.due != 0 {
			d.due = time.UnixMicro(d.e.due)
		}
		s.batch[i].item = item{}
		if d.e.theirs(s) {
			theirs = append(theirs, d)
		} else {
			ours = append(ours, d)
		}
	}
	s.theirs = theirs[:0]
	return ours, theirs, now, wait
}

// putBack gives the heap back what was taken and has not been sent on its way.
func (s *Scheduler) putBack(items []dueItem) {
	s.lock()
	defer s.unlock()
	for i := range items {
		if items[i].again != nil {
			items[i].e.later++
		}
		s.heap.push(items[i].item)
	}
	clear(items)
}

// ask asks the schedule and the blackouts. Called without mu.
func (d *dueItem) ask(s *Scheduler, now time.Time) {
	switch {
	case d.again != nil:
		d.dark = s.darkAgain(d.e, *d.again, now)
	case d.tick.IsZero():
		d.coming.next, d.coming.err = s.askAgain(d.e, d.due, now)
	default:
		d.coming = s.comeDue(d.e, d.tick, time.UnixMicro(d.when), now)
	}
}

// come sends an item on its way. Called with mu held.
func (s *Scheduler) come(d *dueItem) {
	switch {
	case d.again != nil:
		s.retry(d.item, d.dark)
	case d.e.gone.Load():
	case d.tick.IsZero():
		s.setNext(d.e, d.coming.next, d.coming.err)
	default:
		s.due(d.e, &d.coming)
	}
}

// steppedBack reports whether the wall clock was set back: it shows less than has passed.
func steppedBack(passed, shown time.Duration) bool { return passed-shown > time.Second }

// replan asks all schedules again: what was planned by a clock that was ahead would leave the
// timers silent until the clock gets there again. A tick that this host has come to comes due no
// second time if the clock went back by less than the time between two: a nightly run must not be
// repeated because of a second. Otherwise those that lie ahead again do, and the store knows them.
func (s *Scheduler) replan(now time.Time) {
	s.lock()
	s.log.later(slog.LevelWarn, "timer: the wall clock was set back; asking all schedules again")
	s.heap = slices.DeleteFunc(s.heap, func(it item) bool { return it.again == nil })
	s.dropped = 0
	for i := range s.heap {
		s.heap[i].when = now.UnixMicro() // a tick that waits does so by the clock that was ahead: look again
	}
	after := make(map[*entry]time.Time)
	for _, e := range s.registry.registered() {
		after[e] = time.Time{}
		if due := time.UnixMicro(e.due); e.due != 0 && due.Sub(now) < e.interval() {
			after[e] = due
		}
	}
	s.unlock()
	for e, done := range after {
		next, err := s.first(e, now, done)
		s.lock()
		s.setNext(e, next, err)
		s.unlock()
	}
}

// due accounts for a tick and those missed before it, plans the next and tries the tick. Called
// with mu held.
func (s *Scheduler) due(e *entry, c *coming) {
	last := c.last.UnixMicro()
	if c.missed > 0 {
		s.ledger.missed(&e.state.record, c.missed, c.first, c.last)
	}
	e.due = last
	s.setNext(e, c.next, c.err)
	s.ledger.cameDue(&e.state.record)
	s.darkness(e, c.dark)
	switch {
	case c.dark != nil:
		s.ledger.skip(&e.state.record, last, ReasonBlackout, c.dark)
	case c.late > lateGrace && c.late > e.catchUpWindow():
		s.ledger.skip(&e.state.record, last, ReasonMissed, nil)
	default:
		t := dueTick{at: last}
		if c.late > lateGrace {
			t.missed = c.due.UnixMicro()
		}
		s.try(e, t)
	}
}

// retry tries a tick again, or at last, if it is still the latest. Called with mu held.
func (s *Scheduler) retry(it item, dark error) {
	switch e, t := it.e, *it.again; {
	case e.gone.Load() || e.due != t.at:
		s.ledger.skip(&e.state.record, t.at, t.overtaken(), nil)
	case dark != nil:
		s.darkness(e, dark)
		s.ledger.skip(&e.state.record, t.at, ReasonBlackout, dark)
	default:
		s.try(e, t)
	}
}

func (s *Scheduler) lock() { s.mu.Lock() }

func (s *Scheduler) unlock() {
	s.mu.Unlock()
	s.log.flush()
}
