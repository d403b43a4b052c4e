package timer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// maxInFlight is how many acquires a host has in flight at most; further ticks wait in the queue.
const maxInFlight = 64

// An acquirer acquires slots and ticks from the store, up to maxInFlight at a time, and decides
// what happens with the answers. The caller has taken a place for each tick it submits.
type acquirer struct {
	log      *lineLog
	registry *registry
	limits   *limits
	waiting  *waiting
	planner  *planner // for timers with a fixed delay
	runner   *runner
	ledger   *ledger
	store    *storeWatch    // nil: no store, and nothing is submitted
	session  *dlock.Session // nil: no store

	// mu guards the rest. docs/architecture.md has the order of mutexes.
	mu       sync.Mutex
	inFlight int   // under way
	queue    queue // ticks and triggers that wait for one to end
	closed   bool  // the host drains
}

// overtake replaces an earlier tick of the timer that waits in the queue. It reports false if none
// does.
func (a *acquirer) overtake(t tick) bool {
	a.mu.Lock()
	earlier, waits := a.queue.ticks[t.s.entry]
	if !waits || a.closed || !t.s.current() {
		a.mu.Unlock()
		return false
	}
	a.queue.ticks[t.s.entry] = queuedTick{tick: t}
	a.mu.Unlock()
	a.ledger.skip(t.s, earlier.at, ReasonStoreBusy, nil)
	return true
}

// submit calls the store for a tick, now or when it is the tick's turn. If the breaker is open, it
// applies OnStoreDown at once.
func (a *acquirer) submit(t tick) {
	s := t.s
	if open, why, degraded := a.store.bypass(s); open {
		a.withoutStore(t, why, degraded)
		return
	}
	a.mu.Lock()
	switch {
	case a.closed:
		a.mu.Unlock()
		a.drop(t, ReasonDraining)
	case !s.current():
		a.mu.Unlock()
		a.tryAnew(t)
	case a.queue.has(s.entry): // another was queued while this one was taken out, or waited for a place
		earlier := t
		if queued := a.queue.ticks[s.entry].tick; queued.at < t.at {
			earlier, a.queue.ticks[s.entry] = queued, queuedTick{tick: t}
		}
		a.mu.Unlock()
		a.drop(earlier, ReasonStoreBusy)
	case a.inFlight < maxInFlight:
		a.inFlight++
		a.mu.Unlock()
		go a.attempt(t)
	default:
		a.queue.enqueue(queuedTick{tick: t})
		a.mu.Unlock()
	}
}

// attempt claims a slot and the tick with one call, and carries out the run if it gets them.
func (a *acquirer) attempt(t tick) {
	lease, err := a.acquire(a.runner.base, t)
	a.next()
	x := a.settle(t, lease, err, a.store.recordAnswer(t, lease, err))
	if x.start {
		r := a.runner.startRun(t, nil, lease, x.degraded)
		a.log.flush()
		a.runner.carryOut(r)
		return
	}
	a.afterRefusal(t.s, x.err)
	a.turnAway(t, x)
}

// turnAway lets a tick wait that starts no run, or skips it, and gives back its place.
func (a *acquirer) turnAway(t tick, x settlement) {
	waits := a.waiting.refuse(t, x.why, x.err, true)
	if !waits {
		a.ledger.skip(t.s, t.at, x.why, x.err)
	}
	a.log.flush()
	if !waits {
		a.giveBack(t.s, x.unused) // last, because Run may return then
	}
}

// acquire makes one call to the store.
func (a *acquirer) acquire(ctx context.Context, t tick) (*dlock.Lease, error) {
	s := t.s
	sem := a.session.Semaphore(s.entry.lockName, s.timer.slots()).With(s.locks()...)
	started := time.Now()
	var lease *dlock.Lease
	var err error
	if claim, claims := t.claim(); claims {
		lease, err = sem.TryAcquireTick(ctx, claim)
		s.noteClaim(claim, err)
	} else {
		lease, err = sem.TryAcquire(ctx)
	}
	a.store.metrics.acquired(ctx, lease, err, time.Since(started))
	a.limits.applyAnswer(s, lease, err)
	return lease, a.store.recordAcquire(s.entry.lockName, err)
}

// trigger acquires a slot for a run without a tick, and starts the run. ok is false if its turn did
// not come.
func (a *acquirer) trigger(ctx context.Context, s *settings, by *triggering) (x settlement, ok bool) {
	if !a.awaitTurn(ctx, s) {
		a.registry.leave(s)
		return x, false
	}
	lease, err := a.acquire(ctx, tick{s: s})
	a.next()
	x = a.settle(tick{s: s}, lease, err, a.store.recordAnswer(tick{s: s}, lease, err))
	if x.start {
		r := a.runner.startRun(tick{s: s}, by, lease, x.degraded)
		a.log.flush()
		go a.runner.carryOut(r)
		return x, true
	}
	a.log.flush()
	a.giveBack(s, x.unused)
	return x, true
}

// awaitTurn waits until fewer than maxInFlight acquires are in flight. It counts one more, which is
// in flight until next is called. It reports false when ctx has ended, the timer was removed, or
// the host drains.
func (a *acquirer) awaitTurn(ctx context.Context, s *settings) bool {
	a.mu.Lock()
	switch {
	case a.closed || !a.registry.mayStart(s):
		a.mu.Unlock()
		return false
	case a.inFlight < maxInFlight:
		a.inFlight++
		a.mu.Unlock()
		return true
	}
	w := &waitingTrigger{s: s, ready: make(chan struct{})}
	a.queue.triggers = append(a.queue.triggers, w)
	a.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.hasTurn {
		a.queue.triggers = slices.DeleteFunc(a.queue.triggers, func(other *waitingTrigger) bool { return other == w })
	}
	return w.hasTurn
}

// next ends an attempt and starts the next one in the queue. Queued ticks for which the breaker has
// opened follow OnStoreDown.
func (a *acquirer) next() {
	for _, down := range a.takeAllIfDown() {
		a.submit(down)
	}
	for {
		next := a.takeNext()
		if next.s == nil {
			return
		}
		open, why, degraded := a.store.bypass(next.s) // one of several servers
		if !open {
			go a.attempt(next)
			return
		}
		a.withoutStore(next, why, degraded)
	}
}

// takeAllIfDown takes all ticks out of the queue if the breaker is open for all timers.
func (a *acquirer) takeAllIfDown() []tick {
	if !a.store.allOpen() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.all()
}

// takeNext takes the next tick out of the queue for an attempt in place of the one that has ended.
// It returns the zero tick if a trigger's turn has come, or if nothing is queued: then one attempt
// less is under way.
func (a *acquirer) takeNext() tick {
	a.mu.Lock()
	defer a.mu.Unlock()
	next, trigger := a.queue.serve()
	switch {
	case trigger:
		return tick{}
	case next.s == nil:
		a.inFlight--
	}
	return next
}

// withdraw removes the tick of a timer that was removed or updated from the queue, and dismisses
// its triggers.
func (a *acquirer) withdraw(e *entry) {
	a.mu.Lock()
	waited := a.queue.withdraw(e)
	a.mu.Unlock()
	if waited.s != nil {
		a.tryAnew(waited)
	}
}

// tryAnew has a tick tried with the present settings of its timer, or drops it.
func (a *acquirer) tryAnew(t tick) {
	a.registry.leave(t.s) // first, because the tick takes a place again
	if !a.waiting.again(t) {
		a.ledger.skip(t.s, t.at, ReasonDraining, nil)
	}
}

// close empties the queue; nothing is queued any more.
func (a *acquirer) close() {
	a.mu.Lock()
	a.closed = true
	left := a.queue.close()
	a.mu.Unlock()
	for _, l := range left {
		a.drop(l, ReasonDraining)
	}
}

// drop skips a tick and gives its place back.
func (a *acquirer) drop(t tick, why Reason) {
	a.ledger.skip(t.s, t.at, why, nil)
	a.registry.leave(t.s)
}
