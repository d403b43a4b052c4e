package timer

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// An acquirer acquires slots and ticks from the store, up to maxInFlight at a time, and acts on the
// results. The caller has reserved a place for each tick that it submits. An acquirer has no mutex,
// because its fields do not change.
type acquirer struct {
	log      *lineLog
	registry *registry
	limits   *limits
	waiting  *waiting
	runner   *runner
	ledger   *ledger
	store    *storeWatch    // nil without a store; then nothing is submitted
	session  *dlock.Session // nil without a store
}

// submit calls the store for a tick, immediately or when the tick reaches the head of the queue. If
// the breaker is open, it applies OnStoreDown instead.
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
		a.waitOrSkip(t, nextStep{why: why})
	}
}

// attempt claims a slot and the tick in one call. If the store grants both, it executes the run.
func (a *acquirer) attempt(t tick) {
	lease, err := a.acquire(a.runner.base, t)
	a.next()
	x := a.decide(t, lease, err, a.store.recordAnswer(t, lease, err))
	if x.start {
		r := a.runner.startRun(t, nil, lease, x.degraded)
		a.log.flush()
		a.runner.carryOut(r)
		return
	}
	a.afterRefusal(t.s, x.err)
	a.waitOrSkip(t, x)
}

// waitOrSkip handles a tick that starts no run: it makes the tick wait or skips it, and frees its
// place.
func (a *acquirer) waitOrSkip(t tick, x nextStep) {
	a.log.flush() // before refuse, because Run may return once refuse has freed the place
	if a.waiting.refuse(t, x.why, x.err, true) {
		return
	}
	a.ledger.skip(t.s, t.at, x.why, x.err)
	a.log.flush()
	a.release(t.s, x.unused) // last, for the same reason
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

// trigger acquires a slot for a run without a tick, and starts the run. ok is false if the trigger
// never reached the head of the queue.
func (a *acquirer) trigger(ctx context.Context, s *settings, by *triggering) (x nextStep, ok bool) {
	if !a.waiting.awaitCall(ctx, s) {
		a.registry.leave(s)
		return x, false
	}
	lease, err := a.acquire(ctx, tick{s: s})
	a.next()
	x = a.decide(tick{s: s}, lease, err, a.store.recordAnswer(tick{s: s}, lease, err))
	if x.start {
		r := a.runner.startRun(tick{s: s}, by, lease, x.degraded)
		a.log.flush()
		go a.runner.carryOut(r)
		return x, true
	}
	a.log.flush()
	a.release(s, x.unused)
	return x, true
}

// next ends an attempt and starts the next attempt in the queue. If the breaker has opened, all
// queued ticks follow OnStoreDown, whether they are queued before or after a Trigger.
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
		open, why, degraded := a.store.bypass(t.s) // the server of this timer may be down although others answer
		if !open {
			go a.attempt(t)
			return
		}
		a.withoutStore(t, why, degraded)
	}
}

// A nextStep says how a tick or a Trigger proceeds after the store was called.
type nextStep struct {
	start    bool         // whether to start a run
	degraded bool         // whether the run starts without the store
	why      Reason       // the reason why no run starts; "" if a run starts
	err      error        // the error or refusal from the store
	unused   *dlock.Lease // the lease to release, or nil
}

// decide decides how a tick, or a Trigger (a tick without a time), proceeds after the store has
// granted a lease or returned an error. If degraded is set, the store did not answer and the timer
// continues without it.
func (a *acquirer) decide(t tick, lease *dlock.Lease, err error, degraded bool) nextStep {
	s := t.s
	var paused error
	if degraded {
		paused = a.store.overrides.paused(s)
	}
	switch {
	case a.runner.handOver(s, lease):
		return nextStep{why: ReasonRejoining}
	case paused != nil: // the last pause that the store reported
		return nextStep{why: ReasonPaused, err: paused}
	case lease == nil && (!degraded || t.missedAt != 0): // a missed tick may have run on another host
		return nextStep{why: reasonOf(err), err: err}
	case s.removed(), !a.registry.starting() && !a.mustRun(t, lease): // may have changed during the call
		return nextStep{why: ReasonDraining, unused: lease}
	}
	if why, full := a.limits.enter(s, lease != nil); full != nil {
		return nextStep{why: why, err: full}
	}
	return nextStep{start: true, degraded: degraded}
}

// mustRun reports whether a tick starts although the host began to drain during the call to the
// store. It does if it was claimed, because no other host can run a claimed tick. Scheduler.Run
// waits for this run as for any other.
func (a *acquirer) mustRun(t tick, lease *dlock.Lease) bool {
	_, claimed := t.claim()
	return claimed && lease != nil && a.runner.base.Err() == nil
}

// withoutStore applies OnStoreDown to a tick without calling the store.
func (a *acquirer) withoutStore(t tick, why error, degraded bool) {
	x := a.decide(t, nil, why, degraded)
	if x.start {
		go func() { a.runner.carryOut(a.runner.startRun(t, nil, nil, true)) }()
		return
	}
	a.waitOrSkip(t, x)
}

// afterRefusal schedules the next attempt of a timer with a fixed delay, if the store's refusal
// says when the timer is due.
func (a *acquirer) afterRefusal(s *settings, err error) {
	delay, fixed := s.delay()
	if !fixed {
		return
	}
	switch no := refusal(err); {
	case no == nil:
	case no.Reason == driver.ReasonTickEarly:
		a.waiting.moveNext(s, min(no.ExpiresIn, delay))
	case no.Reason == driver.ReasonFull: // a run is in progress, so the timer is not due before the delay has passed
		a.waiting.moveNext(s, max(delay, minRetryIn))
	}
}

// release frees the place of a run that did not start, and releases its lease if it has one.
func (a *acquirer) release(s *settings, lease *dlock.Lease) {
	if lease != nil {
		a.runner.release(s, lease)
	}
	a.registry.leave(s)
}

// reacquire acquires a slot, without a tick, for each run that has none. It stops when the store
// does not answer, or when until is closed.
func (a *acquirer) reacquire(until <-chan struct{}) {
	for _, s := range a.runner.timersWithoutSlots() {
		for {
			select {
			case <-until:
				return
			default:
			}
			if !a.runner.rejoining(s) {
				break
			}
			lease, err := a.acquire(a.runner.base, tick{s: s})
			if lease != nil || refusal(err) != nil {
				a.store.recordAnswer(tick{s: s}, lease, err)
			}
			given := a.runner.handOver(s, lease)
			a.log.flush()
			if lease != nil && !given { // the run has ended in the meantime
				a.runner.release(s, lease)
			}
			if lease == nil { // no slot is free, or the store has failed again
				break
			}
		}
	}
}
