package timer

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// An acquirer acquires slots and ticks from the store, up to maxInFlight at a time, and decides
// what happens with the answers. The caller has taken a place for each tick it submits. It has no
// mutex, and its fields do not change.
type acquirer struct {
	log      *lineLog
	registry *registry
	limits   *limits
	waiting  *waiting
	runner   *runner
	ledger   *ledger
	store    *storeWatch    // nil: no store, and nothing is submitted
	session  *dlock.Session // nil: no store
}

// submit calls the store for a tick, now or when it is the tick's turn. If the breaker is open, it
// applies OnStoreDown at once.
func (a *acquirer) submit(t tick) {
	if open, why, degraded := a.store.bypass(t.s); open {
		a.withoutStore(t, why, degraded)
		return
	}
	now, why := a.waiting.call(t)
	switch {
	case now:
		go a.attempt(t)
	case why != "":
		a.turnAway(t, settlement{why: why})
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
	a.log.flush() // first, because Run may return when refuse has given the place back
	if a.waiting.refuse(t, x.why, x.err, true) {
		return
	}
	a.ledger.skip(t.s, t.at, x.why, x.err)
	a.log.flush()
	a.giveBack(t.s, x.unused) // last, likewise
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
	if !a.waiting.awaitCall(ctx, s) {
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

// next ends an attempt and starts the next one that waits. If the breaker has opened, ticks that
// wait follow OnStoreDown, those before a Trigger and those behind it.
func (a *acquirer) next() {
	if a.store.allOpen() {
		for _, t := range a.waiting.allCalls() {
			a.submit(t)
		}
	}
	for {
		t, ok := a.waiting.nextCall()
		if !ok {
			return
		}
		open, why, degraded := a.store.bypass(t.s) // one of several servers
		if !open {
			go a.attempt(t)
			return
		}
		a.withoutStore(t, why, degraded)
	}
}
