package timer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// attempt asks the store for a slot and the tick, together, and becomes the run if it gets them.
func (s *Scheduler) attempt(e *entry, tick int64) {
	lease, err := s.acquire(s.base, e, tick)
	s.mu.Lock()
	s.nextInLine()
	if err == nil && !s.starting() {
		// Draining began meanwhile. The slot goes back; the tick is spent.
		s.skip(e, tick, Draining)
		s.mu.Unlock()
		s.giveBack(e, lease)
		return
	}
	degraded := s.heard(e, lease, err)
	switch {
	case err == nil, degraded && s.starting():
		s.mu.Unlock()
		s.run(e, tick, lease, degraded)
	case s.postpone(e, tick, err):
		s.leave(e)
		s.mu.Unlock()
	default:
		s.skip(e, tick, reasonOf(err))
		s.leave(e)
		s.mu.Unlock()
	}
}

// acquire makes one call to the store. tick 0: none is to be claimed.
func (s *Scheduler) acquire(ctx context.Context, e *entry, tick int64) (*dlock.Lease, error) {
	sem := s.session.Semaphore(e.timer.lockName(), e.timer.slots())
	started := time.Now()
	var lease *dlock.Lease
	var err error
	if tick == 0 || e.timer.MaxPerTick == NoLimit {
		lease, err = sem.TryAcquire(ctx)
	} else {
		lease, err = sem.TryAcquireTick(ctx, dlock.Tick{At: time.UnixMicro(tick), Max: e.timer.MaxPerTick})
	}
	if s.metrics != nil {
		s.metrics.acquired(e.timer.Name, s.store.label, err, time.Since(started))
	}
	return lease, err
}

// nextInLine lets the next waiting tick have this attempt's turn. A tick that has been overtaken by the
// next one of its timer is missed. Called with mu held.
func (s *Scheduler) nextInLine() {
	for len(s.line) > 0 {
		w := s.line[0]
		s.line[0] = waiting{}
		s.line = s.line[1:]
		if w.tick != w.e.due {
			s.skip(w.e, w.tick, Missed)
			s.leave(w.e)
			continue
		}
		go s.attempt(w.e, w.tick)
		return
	}
	s.line = nil
	s.attempts--
}

// heard takes in what the store's answer tells about the timer, and reports whether the run is to go on without
// the store. Called with mu held.
func (s *Scheduler) heard(e *entry, lease *dlock.Lease, err error) (degraded bool) {
	d := e.more()
	_, failed := errors.AsType[*dlock.StoreError](err)
	switch no, refused := errors.AsType[*dlock.NotAcquiredError](err); {
	case failed:
		degraded = e.timer.OnStoreDown == RunLocal
		if !d.storeDown && degraded {
			s.log.Warn("timer: runs without the store: up to MaxPerHost runs on each host, none of them valid",
				"timer", e.timer.Name, "max_per_host", e.timer.MaxPerHost, "err", err)
		}
		d.storeDown = true
	case lease != nil:
		d.storeDown = false
		s.declared(e, lease.News().Slots)
	case refused:
		d.storeDown = false
		s.declared(e, no.News.Slots)
		if no.Reason == dlock.Quarantine {
			s.quarantined(e, no.Ends)
		}
	}
	s.showFallback(e)
	return degraded
}

// quarantined says once that a store which restarted grants nothing for a while. Called with mu held.
func (s *Scheduler) quarantined(e *entry, ends time.Duration) {
	now := time.Now()
	if !now.Before(s.quarantine) {
		s.log.Warn("timer: the store restarted and may have lost its leases: it grants nothing until the old ones must have ended",
			"store", s.store.label, "timer", e.timer.Name, "for", ends)
	}
	if until := now.Add(ends); until.After(s.quarantine) {
		s.quarantine = until
	}
}

// declared compares the number of slots with what other hosts say. Called with mu held.
func (s *Scheduler) declared(e *entry, slots int) {
	if slots == e.timer.slots() {
		slots = 0
	}
	d := e.more()
	if slots == d.declared {
		return
	}
	d.declared = slots
	if slots != 0 {
		s.log.Warn("timer: hosts disagree about MaxConcurrency; together they keep to the larger number",
			"timer", e.timer.Name, "here", e.timer.slots(), "elsewhere", slots)
	}
	if m := s.metricsOf(e); m != nil {
		m.elsewhere(e.timer.Name, slots)
	}
}

// postpone has a tick tried again when the store's quarantine is over, if no other comes due before: a daily timer must
// not lose its day to a restart of the store. Called with mu held.
func (s *Scheduler) postpone(e *entry, tick int64, err error) bool {
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	if !ok || no.Reason != dlock.Quarantine || tick == 0 || e.gone || !s.starting() {
		return false
	}
	when := time.Now().Add(no.Ends + time.Millisecond).UnixMicro()
	if e.due != tick || e.next != 0 && e.next <= when {
		return false
	}
	s.heap.push(item{when: when, postponed: tick, e: e})
	s.poke()
	return true
}

// giveBack releases a lease that no run came of.
func (s *Scheduler) giveBack(e *entry, lease *dlock.Lease) {
	s.release(e, lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(e)
}

// release reports nothing: a lost lease was reported when it was lost, and what a store did not answer the session
// goes on trying.
func (s *Scheduler) release(e *entry, lease *dlock.Lease) {
	if err := lease.Release(s.base); err != nil {
		s.log.Debug("timer: the slot was not released", "timer", e.timer.Name, "slot", lease.Slot(), "err", err)
	}
}

// Trigger starts a run now and returns once it has started, or an error: a *RefusedError that says which limit
// was reached, or ErrUnknown. It obeys MaxConcurrency and MaxPerHost, but no schedule and no MaxPerTick. While the
// store does not answer, OnStoreDown decides. The run does not end with ctx.
func (s *Scheduler) Trigger(ctx context.Context, name string) error {
	s.mu.Lock()
	e := s.entries[name]
	if e == nil {
		s.mu.Unlock()
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	refuse := func(reason Reason, err error) error {
		return &RefusedError{Timer: name, Reason: reason, Err: err}
	}
	if !s.starting() {
		reason := NotRunning
		if s.phase == draining {
			reason = Draining
		}
		s.mu.Unlock()
		return refuse(reason, nil)
	}
	if e.places >= s.hostLimit(e) {
		s.mu.Unlock()
		return refuse(LimitLocal, nil)
	}
	s.enter(e)
	s.mu.Unlock()
	if !s.shared(e) {
		go s.run(e, 0, nil, false)
		return nil
	}
	lease, err := s.acquire(ctx, e, 0)
	s.mu.Lock()
	if err == nil && !s.starting() {
		s.mu.Unlock()
		s.giveBack(e, lease)
		return refuse(Draining, nil)
	}
	degraded := s.heard(e, lease, err)
	if err != nil && !(degraded && s.starting()) {
		s.leave(e)
		s.mu.Unlock()
		if ctx.Err() != nil {
			return err
		}
		return refuse(reasonOf(err), err)
	}
	s.mu.Unlock()
	go s.run(e, 0, lease, degraded)
	return nil
}
