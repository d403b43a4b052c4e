package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	x := s.settle(e, t, lease, err, s.heard(e, lease, err, t))
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
	s.lock()
	defer s.unlock()
	return lease, s.store.heard(name, err)
}

// heard takes in what the store's answer tells about the timer, and reports whether the run is to
// go on without the store. Called with mu held.
func (s *Scheduler) heard(e *entry, lease *dlock.Lease, err error, t dueTick) (degraded bool) {
	_, failed := errors.AsType[*dlock.StoreError](err)
	switch no, refused := errors.AsType[*dlock.NotAcquiredError](err); {
	case failed:
		return s.down(e, err)
	case lease != nil:
		s.answered(e)
		e.state.view.full = fullAnswer{}
		info := lease.Info()
		s.declared(e, info.DeclaredSlots)
		s.applyOverrides(e, info, nil)
		s.ledger.heardOfSuccess(&e.state.record, info.SinceSuccess, e.clock.interval())
		if lease.PreviousExpired() {
			s.ledger.count(&e.state.record, func(t *tally) { t.leasesExpired++ })
		}
		if !s.quarantine.IsZero() && !time.Now().Before(s.quarantine) {
			s.quarantine = time.Time{}
			s.log.later(slog.LevelInfo, "timer: the store grants again", "store", s.store.label)
		}
	case refused:
		s.answered(e)
		s.declared(e, no.Info.DeclaredSlots)
		if t.missed == 0 { // one that was missed may be refused for a pause that is over
			s.applyOverrides(e, no.Info, no)
		}
		s.ledger.heardOfSuccess(&e.state.record, no.Info.SinceSuccess, e.clock.interval())
		if no.Info.SinceSuccess == 0 || t.at != 0 && e.mayEndInTime(no) {
			s.ledger.discount(&e.state.record)
		}
		e.state.view.holder = no.Holder
		s.remember(e, no)
		s.heldFor(e, no)
		if no.Reason == dlock.ReasonQuarantine {
			s.quarantined(no.ExpiresIn)
		}
	}
	return false
}

// answered ends the fallback of a timer, or what the store found wrong with it. Called with mu
// held.
func (s *Scheduler) answered(e *entry) {
	d := e.state
	d.storeDown = false
	d.storeFault = ""
}

// down notes that the store serves a timer not, and reports whether the timer goes on without it:
// only a store that does not answer is a reason to. One that says what is wrong does so to every
// host, and all of them would run. Called with mu held.
func (s *Scheduler) down(e *entry, err error) (degraded bool) {
	d := e.state
	switch reasonOf(err) {
	case ReasonStoreSetup:
		d.storeDown = false
		return false
	case ReasonStoreFault:
		d.storeDown = false
		if e.state.storeFault == "" {
			s.log.laterFew(&s.remarked.faults, slog.LevelWarn, "timer: does not run, because the store found something wrong", "timer", e.timer.Name, "err", err)
		}
		e.state.storeFault = fmt.Sprint(err)
		return false
	}
	degraded = e.timer.OnStoreDown == StoreDownRunLocal
	if degraded && !d.storeDown {
		s.log.later(slog.LevelDebug, "timer: runs without the store: up to MaxPerHost runs on each host, none of them valid",
			"timer", e.timer.Name, "max_per_host", limitText(e.timer.MaxPerHost), "err", err)
	}
	d.storeDown = true
	return degraded
}

// heldFor says once of each holder that it holds a slot for longer than any run should take. Called
// with mu held.
func (s *Scheduler) heldFor(e *entry, no *dlock.NotAcquiredError) {
	d := &e.state.view
	if no.Reason != dlock.ReasonFull || no.HeldFor-no.HeldFor/3 <= e.timer.MaxRunTime || d.overlong == no.Holder {
		return
	}
	d.overlong = no.Holder
	s.log.later(slog.LevelWarn, "timer: a slot has been held for longer than 1.5 × MaxRunTime: is MaxRunTime longer there?",
		"timer", e.timer.Name, "holder", no.Holder.String(), "since", no.HeldFor.Round(time.Millisecond), "max_run_time", e.timer.MaxRunTime)
	s.ledger.count(&e.state.record, func(t *tally) { t.overlongHolds++ })
}

// unknownQuarantine is when a store is asked again that does not say when its quarantine ends.
const unknownQuarantine = time.Second

// quarantined says once that a store which restarted grants nothing for a while. Called with mu
// held.
func (s *Scheduler) quarantined(ends time.Duration) {
	now := time.Now()
	ends = max(ends, unknownQuarantine)
	if !now.Before(s.quarantine) {
		s.log.later(slog.LevelWarn, "timer: the store has (re)started and may have lost its leases: it grants nothing until old ones must have ended",
			"store", s.store.label, "for", ends)
	}
	if until := now.Add(ends); until.After(s.quarantine) {
		s.quarantine = until
	}
}

// disagreement is how long hosts are taken to disagree after the last sign of it: the answers tell
// what the latest grant declared, which is as often our own.
const disagreement = time.Minute

// declared compares the number of slots with what other hosts say. Called with mu held.
func (s *Scheduler) declared(e *entry, slots int) {
	d, now := &e.state.view, time.Now()
	switch agrees := slots == 0 || slots == e.timer.slots(); {
	case agrees && (d.declared == 0 || now.Sub(d.heardOf) < disagreement):
		return
	case agrees:
		d.declared = 0
	default:
		d.heardOf = now
		if slots == d.declared {
			return
		}
		d.declared = slots
		s.log.later(slog.LevelWarn, "timer: hosts disagree about MaxConcurrency; together they keep to the larger number",
			"timer", e.timer.Name, "here", e.timer.slots(), "elsewhere", slots)
	}
}

// release reports nothing: a lost lease was reported when it was lost, and what a store did not
// answer the session goes on trying.
func (s *Scheduler) release(e *entry, lease *dlock.Lease) {
	if err := lease.Release(s.base); err != nil {
		s.log.Debug("timer: the slot was not released", "timer", e.timer.Name, "slot", lease.Slot(), "err", err)
	}
}
