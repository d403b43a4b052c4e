package timer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// maxAttempts bounds the calls to the store that are under way; further ticks wait in the queue.
const maxAttempts = 64

// An acquirer asks the store for slots and ticks, some at a time, and settles what becomes of them
// once the store has answered. Whoever hands it a tick has taken a place for it.
type acquirer struct {
	log      *lineLog
	registry *registry
	planner  *planner // for ticks that are tried later
	runner   *runner
	ledger   *ledger
	store    *storeWatch    // nil: no store, and nothing is handed to the acquirer
	session  *dlock.Session // nil: no store

	// mu guards the rest, and the waits of every entry. While it is held, only the mutexes of
	// store watch, registry and clocks are taken.
	mu       sync.Mutex
	attempts int   // under way
	queue    queue // who waits for one to end
	closed   bool  // the host drains
}

// overtake has a tick take the place of an earlier one of its timer that waits in the queue. It
// reports false if none does.
func (a *acquirer) overtake(e *entry, t dueTick) bool {
	a.mu.Lock()
	earlier := e.waits
	if earlier.at == 0 || a.closed {
		a.mu.Unlock()
		return false
	}
	e.waits = t
	a.mu.Unlock()
	a.ledger.skip(&e.state.record, earlier.at, ReasonStoreBusy, nil)
	return true
}

// submit has the store asked for a tick, now or when it is the tick's turn; or does at once what
// its timer does while the store is down.
func (a *acquirer) submit(e *entry, t dueTick) {
	if open, why, degraded := a.store.without(e); open {
		a.withoutStore(e, t, why, degraded)
		return
	}
	a.mu.Lock()
	switch {
	case a.closed:
		a.mu.Unlock()
		a.drop(e, t, ReasonDraining)
	case e.waits.at != 0: // a later one waits, which came while this one was taken out of the queue
		a.mu.Unlock()
		a.drop(e, t, ReasonStoreBusy)
	case a.attempts < maxAttempts:
		a.attempts++
		a.mu.Unlock()
		go a.attempt(e, t)
	default:
		a.queue.enqueue(e, t)
		a.mu.Unlock()
	}
}

// attempt asks the store for a slot and the tick, together, and becomes the run if it gets them.
func (a *acquirer) attempt(e *entry, t dueTick) {
	lease, err := a.acquire(a.runner.base, e, t)
	a.next()
	x := a.settle(e, t, lease, err, a.store.answer(e, t, lease, err))
	if x.start {
		r := a.runner.startRun(e, t.at, lease, x.degraded)
		a.log.flush()
		a.runner.carryOut(r)
		return
	}
	if x.why != "" {
		a.ledger.skip(&e.state.record, t.at, x.why, x.err)
	}
	a.log.flush()
	a.giveBack(e, x.unused)
}

// acquire makes one call to the store. The zero dueTick: none is to be claimed.
func (a *acquirer) acquire(ctx context.Context, e *entry, t dueTick) (*dlock.Lease, error) {
	sem := a.session.Semaphore(e.lockName, e.timer.slots())
	started := time.Now()
	var lease *dlock.Lease
	var err error
	if tick, claims := e.claim(t); claims {
		lease, err = sem.TryAcquireTick(ctx, tick)
	} else {
		lease, err = sem.TryAcquire(ctx)
	}
	if a.store.acquireTime != nil {
		a.ledger.count(&e.state.record, func(t *tally) { t.acquired(err) })
		a.store.acquireTime.Observe(time.Since(started).Seconds())
	}
	return lease, a.store.asked(e.lockName, err)
}

// trigger asks the store for a slot for a run without a tick, and starts the run if it gets one. ok
// is false if it never was its turn.
func (a *acquirer) trigger(ctx context.Context, e *entry) (x settlement, ok bool) {
	if !a.awaitTurn(ctx, e) {
		a.registry.leave(e)
		return x, false
	}
	lease, err := a.acquire(ctx, e, dueTick{})
	a.next()
	x = a.settle(e, dueTick{}, lease, err, a.store.answer(e, dueTick{}, lease, err))
	if x.start {
		r := a.runner.startRun(e, 0, lease, x.degraded)
		a.log.flush()
		go a.runner.carryOut(r)
		return x, true
	}
	a.log.flush()
	a.giveBack(e, x.unused)
	return x, true
}

// awaitTurn waits until fewer than maxAttempts calls to the store are under way, and takes the
// place of one, which next gives back. It reports false when ctx has ended, the timer was removed,
// or the host drains.
func (a *acquirer) awaitTurn(ctx context.Context, e *entry) bool {
	a.mu.Lock()
	switch {
	case a.closed || !a.registry.mayStart(e):
		a.mu.Unlock()
		return false
	case a.attempts < maxAttempts:
		a.attempts++
		a.mu.Unlock()
		return true
	}
	w := &waitingTrigger{e: e, ready: make(chan struct{})}
	a.queue.triggers = append(a.queue.triggers, w)
	a.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.turn {
		a.queue.triggers = slices.DeleteFunc(a.queue.triggers, func(other *waitingTrigger) bool { return other == w })
	}
	return w.turn
}

// next lets whose turn it is have the place of an attempt that has ended. Ticks of which the store
// is not asked any more go on as their timers do while it is down.
func (a *acquirer) next() {
	down, e, t := a.takeNext()
	for _, d := range down {
		a.submit(d.e, d.tick)
	}
	if e != nil {
		go a.attempt(e, t)
	}
}

// A queuedTick is a tick that was taken out of the queue.
type queuedTick struct {
	e    *entry
	tick dueTick
}

// takeNext takes the tick out of the queue whose turn it is, and before it those that the store is
// not asked about.
func (a *acquirer) takeNext() (down []queuedTick, e *entry, t dueTick) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts--
	if a.store.allOpen() {
		for e, t := a.queue.oldest(); e != nil; e, t = a.queue.oldest() {
			down = append(down, queuedTick{e, t})
		}
	}
	for {
		e, t, trigger := a.queue.serve()
		switch {
		case trigger:
			a.attempts++
			return down, nil, dueTick{}
		case e == nil:
			return down, nil, dueTick{}
		case a.store.isOpen(e): // one of several servers
			down = append(down, queuedTick{e, t})
		default:
			a.attempts++
			return down, e, t
		}
	}
}

// withdraw takes the tick and the triggers of a timer that was removed out of the queue.
func (a *acquirer) withdraw(e *entry) {
	a.mu.Lock()
	t, waited := a.queue.takeOut(e)
	a.queue.dismiss(e)
	a.mu.Unlock()
	if waited {
		a.drop(e, t, ReasonDraining)
	}
}

// close empties the queue, which takes nobody in any more.
func (a *acquirer) close() {
	var left []queuedTick
	a.mu.Lock()
	a.closed = true
	for e, t := a.queue.oldest(); e != nil; e, t = a.queue.oldest() {
		left = append(left, queuedTick{e, t})
	}
	a.queue.dismiss(nil)
	a.mu.Unlock()
	for _, l := range left {
		a.drop(l.e, l.tick, ReasonDraining)
	}
}

// drop skips a tick that has a place.
func (a *acquirer) drop(e *entry, t dueTick, why Reason) {
	a.ledger.skip(&e.state.record, t.at, why, nil)
	a.registry.leave(e)
}
