package timer

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// ask has the store asked for a tick. Called with mu held.
func (s *Scheduler) ask(e *entry, t dueTick) {
	s.attempts++
	go s.attempt(e, t)
}

// attempt asks the store for a slot and the tick, together, and becomes the run if it gets them.
func (s *Scheduler) attempt(e *entry, t dueTick) {
	lease, err := s.acquire(s.base, e, t)
	s.lock()
	s.nextInLine()
	x := s.settle(e, t, lease, err, s.store.answer(e, t, lease, err))
	switch {
	case x.start:
		s.unlock()
		s.run(e, t.at, lease, x.degraded)
		return
	case x.why != "":
		s.ledger.skip(&e.state.record, t.at, x.why, x.err)
	}
	s.unlock()
	s.giveBack(e, x.unused)
}

// acquire makes one call to the store. The zero dueTick: none is to be claimed.
func (s *Scheduler) acquire(ctx context.Context, e *entry, t dueTick) (*dlock.Lease, error) {
	s.lock()
	name := e.lockName
	sem := s.session.Semaphore(name, e.timer.slots())
	tick, claims := e.claim(t)
	s.unlock()
	started := time.Now()
	var lease *dlock.Lease
	var err error
	if claims {
		lease, err = sem.TryAcquireTick(ctx, tick)
	} else {
		lease, err = sem.TryAcquire(ctx)
	}
	if s.metrics != nil {
		s.ledger.count(&e.state.record, func(t *tally) { t.acquired(err) })
		s.store.acquireTime.Observe(time.Since(started).Seconds())
	}
	return lease, s.store.asked(name, err)
}

// release reports nothing: a lost lease was reported when it was lost, and what a store did not
// answer the session goes on trying.
func (s *Scheduler) release(e *entry, lease *dlock.Lease) {
	if err := lease.Release(s.base); err != nil {
		s.log.Debug("timer: the slot was not released", "timer", e.timer.Name, "slot", lease.Slot(), "err", err)
	}
}
