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
	degraded := s.heard(e, lease, err, t) && t.missed == 0 // nobody knows whether a missed tick was run
	switch {
	case s.handOver(e, lease):
		s.skip(e, t.at, ReasonRejoining, nil)
		s.leave(e)
		s.unlock()
	case degraded && e.pauseKnown(): // the store said so before it fell silent
		s.skip(e, t.at, ReasonPaused, e.state.view.overrides.refusal(e))
		s.leave(e)
		s.unlock()
	case (err == nil || degraded) && s.starting() && !e.gone:
		s.unlock()
		s.run(e, t.at, lease, degraded)
	case err == nil || degraded: // draining began meanwhile, or the timer was removed; a tick that was claimed is spent
		s.skip(e, t.at, ReasonDraining, nil)
		s.unlock()
		s.giveBack(e, lease)
	case s.postpone(e, t, err):
		s.leave(e)
		s.unlock()
	default:
		s.skip(e, t.at, reasonOf(err), err)
		s.leave(e)
		s.unlock()
	}
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
	s.lock()
	defer s.unlock()
	if s.metrics != nil {
		s.tally(e).acquired(err)
		s.store.acquireTime.Observe(time.Since(started).Seconds())
	}
	return lease, s.store.heard(name, err)
}

// heard takes in what the store's answer tells about the timer, and reports whether the run is to
// go on without the store. Called with mu held.
func (s *Scheduler) heard(e *entry, lease *dlock.Lease, err error, t dueTick) (degraded bool) {
	d := e.state
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
		s.heardOfSuccess(e, info.SinceSuccess)
		if t := s.tally(e); t != nil && lease.PreviousExpired() {
			t.leasesExpired++
		}
		if !s.quarantine.IsZero() && !time.Now().Before(s.quarantine) {
			s.quarantine = time.Time{}
			s.say(slog.LevelInfo, "timer: the store grants again", "store", s.store.label)
		}
	case refused:
		s.answered(e)
		s.declared(e, no.Info.DeclaredSlots)
		if t.missed == 0 { // one that was missed may be refused for a pause that is over
			s.applyOverrides(e, no.Info, no)
		}
		s.heardOfSuccess(e, no.Info.SinceSuccess)
		if no.Info.SinceSuccess == 0 || t.at != 0 && e.mayEndInTime(no) {
			d.silence.unknown()
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
			s.sayFew(&s.remarked.faults, slog.LevelWarn, "timer: does not run, because the store found something wrong", "timer", e.timer.Name, "err", err)
		}
		e.state.storeFault = fmt.Sprint(err)
		return false
	}
	degraded = e.timer.OnStoreDown == StoreDownRunLocal
	if degraded && !d.storeDown {
		s.say(slog.LevelDebug, "timer: runs without the store: up to MaxPerHost runs on each host, none of them valid",
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
	s.say(slog.LevelWarn, "timer: a slot has been held for longer than 1.5 × MaxRunTime: is MaxRunTime longer there?",
		"timer", e.timer.Name, "holder", no.Holder.String(), "since", no.HeldFor.Round(time.Millisecond), "max_run_time", e.timer.MaxRunTime)
	if t := s.tally(e); t != nil {
		t.overlongHolds++
	}
}

// unknownQuarantine is when a store is asked again that does not say when its quarantine ends.
const unknownQuarantine = time.Second

// quarantined says once that a store which restarted grants nothing for a while. Called with mu
// held.
func (s *Scheduler) quarantined(ends time.Duration) {
	now := time.Now()
	ends = max(ends, unknownQuarantine)
	if !now.Before(s.quarantine) {
		s.say(slog.LevelWarn, "timer: the store has (re)started and may have lost its leases: it grants nothing until old ones must have ended",
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
		s.say(slog.LevelWarn, "timer: hosts disagree about MaxConcurrency; together they keep to the larger number",
			"timer", e.timer.Name, "here", e.timer.slots(), "elsewhere", slots)
	}
}

// postpone has a tick tried again when the store's quarantine is over, if no other comes due
// before: a daily timer must not lose its day to a restart of the store. Called with mu held.
func (s *Scheduler) postpone(e *entry, t dueTick, err error) bool {
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	if !ok || no.Reason != dlock.ReasonQuarantine || t.at == 0 || e.gone || !s.starting() {
		return false
	}
	when := s.now().Add(max(no.ExpiresIn, unknownQuarantine)).Add(time.Millisecond)
	if e.due != t.at || e.next != 0 && e.next <= when.UnixMicro() {
		return false
	}
	t.stood = false // that was a moment; this may be long, so that blackouts have to be asked again
	s.tryLater(when, e, t)
	s.poke()
	return true
}

// giveBack gives up the place of a run that did not come about, and its lease if there is one.
func (s *Scheduler) giveBack(e *entry, lease *dlock.Lease) {
	if lease != nil {
		s.release(e, lease)
	}
	s.lock()
	defer s.unlock()
	s.leave(e)
}

// release reports nothing: a lost lease was reported when it was lost, and what a store did not
// answer the session goes on trying.
func (s *Scheduler) release(e *entry, lease *dlock.Lease) {
	if err := lease.Release(s.base); err != nil {
		s.log.Debug("timer: the slot was not released", "timer", e.timer.Name, "slot", lease.Slot(), "err", err)
	}
}

// Trigger starts a run now and returns once it has started and Status shows it, or an error: a
// *RefusedError that says which limit was reached, or ErrUnknown. It obeys MaxConcurrency and
// MaxPerHost, but no schedule and no MaxPerTick. While the store does not answer, OnStoreDown
// decides; but it is asked, also while ticks do not. What it finds wrong (StoreSetup, StoreFault)
// refuses the run. If many calls to the store are under way it waits in line for its turn, until
// ctx ends. The run does not end with ctx.
func (s *Scheduler) Trigger(ctx context.Context, name string) error {
	if ctx == nil {
		return errNilContext
	}
	refuse := func(reason Reason, err error) error {
		return &RefusedError{Timer: name, Reason: reason, Err: err}
	}
	s.lock()
	e := s.entries[name]
	if e == nil {
		s.unlock()
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	if reason, err := s.refusesTrigger(e); reason != "" {
		s.unlock()
		return refuse(reason, err)
	}
	s.enter(e)
	if !s.shared(e) {
		r := s.begun(e, 0, nil, false)
		s.unlock()
		go s.carryOut(r)
		return nil
	}
	s.unlock()
	var lease *dlock.Lease
	var err error
	turn := s.awaitTurn(ctx, e)
	if turn {
		lease, err = s.acquire(ctx, e, dueTick{})
	}
	s.lock()
	degraded := false
	if turn {
		s.nextInLine()
		degraded = s.heard(e, lease, err, dueTick{})
	}
	switch {
	case s.handOver(e, lease):
		s.leave(e)
		s.unlock()
		return refuse(ReasonRejoining, nil)
	case e.gone:
		s.unlock()
		s.giveBack(e, lease)
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	case !s.starting():
		s.unlock()
		s.giveBack(e, lease)
		return refuse(ReasonDraining, nil)
	case !turn:
		s.leave(e)
		s.unlock()
		return fmt.Errorf("timer %q: not triggered, %d calls to the store were under way: %w", name, maxAttempts, context.Cause(ctx))
	case degraded && e.pauseKnown():
		refusal := e.state.view.overrides.refusal(e)
		s.leave(e)
		s.unlock()
		return refuse(ReasonPaused, refusal)
	case err == nil || degraded:
		r := s.begun(e, 0, lease, degraded)
		s.unlock()
		go s.carryOut(r)
		return nil
	}
	s.leave(e)
	s.unlock()
	if ctx.Err() != nil {
		return err
	}
	return refuse(reasonOf(err), err)
}

// refusesTrigger says why nothing may be started of a timer, as far as this host knows; "": it may.
// Called with mu held.
func (s *Scheduler) refusesTrigger(e *entry) (Reason, error) {
	switch {
	case s.phase == draining:
		return ReasonDraining, nil
	case !s.starting():
		return ReasonNotRunning, nil
	case s.pausedHere(e):
		return ReasonPaused, e.state.view.overrides.refusal(e)
	case e.held() >= e.hostLimit():
		return ReasonHostFull, nil
	case s.rejoining(e):
		return ReasonRejoining, nil
	}
	return "", nil
}
