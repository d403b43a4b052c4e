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
)

// Overrides that are set through a Control are enforced by the store, which tells of them with
// every answer. A host learns of it with its next tick or, because its slot of hostsLock is renewed
// all the time, within a heartbeat; only then does it ask what there is.

// overrides are those of a timer, as this host knows them.
type overrides struct {
	version   int64 // of what the store last told
	limit     int   // MaxConcurrency instead of what the code says; 0: none
	paused    bool
	until     time.Time // of the pause; zero: open
	by        dlock.Origin
	triggered time.Time // the latest trigger that was seen
}

// refusal is why a timer does not run that is paused.
func (o *overrides) refusal(e *entry) error {
	no := &dlock.NotAcquiredError{Name: e.lockName, Reason: dlock.ReasonPaused, Slots: e.timer.slots(), PausedBy: o.by}
	if !o.until.IsZero() {
		no.ExpiresIn = time.Until(o.until)
	}
	return no
}

// pausedHere reports whether a timer is paused that the store is not asked about. Called with mu
// held.
func (s *Scheduler) pausedHere(e *entry) bool {
	return s.session != nil && !e.timer.LocalOnly && e.state.view.overrides.inForce() && !s.shared(e)
}

// pauseKnown reports whether the store said that a timer is paused, and that has not ended by
// itself. It matters when the store does not answer: who pauses a timer because the database is
// being moved must not find it running when the database is gone. Called with mu held.
func (e *entry) pauseKnown() bool { return e.state.view.overrides.inForce() }

// inForce reports whether a pause has not ended by itself.
func (o *overrides) inForce() bool {
	return o.paused && (o.until.IsZero() || time.Now().Before(o.until))
}

// outdated reports whether the store has told something newer: answers overtake each other. A store
// that knows of no overrides (any more) is always believed. Called with mu held.
func (o *overrides) outdated(version int64) bool {
	if version != 0 && version < o.version {
		return true
	}
	o.version = version
	return false
}

// applyOverrides takes in what an answer of the store tells of overrides. Called with mu held.
func (s *Scheduler) applyOverrides(e *entry, info dlock.Info, no *dlock.NotAcquiredError) {
	if e.state.view.overrides.outdated(info.Version) {
		return
	}
	if no != nil && no.Reason == dlock.ReasonPaused {
		s.setPause(e, &no.PausedBy, no.ExpiresIn)
	} else {
		s.setPause(e, nil, 0)
	}
	s.setLimit(e, info.SlotLimit)
}

// setPause notes who has paused a timer, and for how long (0: open), or that nobody has. Called
// with mu held.
func (s *Scheduler) setPause(e *entry, by *dlock.Origin, left time.Duration) {
	o := &e.state.view.overrides
	was := o.paused
	o.paused, o.until = by != nil, time.Time{}
	if left > 0 {
		o.until = time.Now().Add(left)
	}
	if by != nil {
		o.by = *by
	}
	if o.paused == was {
		return
	}
	s.pauses = s.pauses || o.paused
	if !o.paused {
		s.log.later(slog.LevelInfo, "timer: no longer paused", "timer", e.timer.Name)
		return
	}
	until := "resumed"
	if !o.until.IsZero() {
		until = o.until.UTC().Format(time.RFC3339)
	}
	s.log.later(slog.LevelInfo, "timer: paused in the whole fleet", "timer", e.timer.Name, "until", until, "by", o.by.By, "note", o.by.Note)
}

// endPauses notes which pauses have ended by themselves: of timers that are not due the store says
// nothing. Called with mu held.
func (s *Scheduler) endPauses() {
	if !s.pauses {
		return // there may be a hundred thousand timers, and hardly ever a pause
	}
	s.pauses = false
	for _, e := range s.registry.registered() {
		switch {
		case !e.state.view.overrides.paused:
		case e.state.view.overrides.inForce():
			s.pauses = true
		default:
			s.setPause(e, nil, 0)
		}
	}
}

// setLimit is called with mu held.
func (s *Scheduler) setLimit(e *entry, limit int) {
	o := &e.state.view.overrides
	if o.limit == limit {
		return
	}
	if limit > 0 {
		s.log.later(slog.LevelInfo, "timer: MaxConcurrency is overridden in the fleet", "timer", e.timer.Name, "override", limit, "in_code", e.timer.MaxConcurrency)
	} else {
		s.log.later(slog.LevelInfo, "timer: MaxConcurrency is no longer overridden", "timer", e.timer.Name, "in_code", e.timer.MaxConcurrency)
	}
	o.limit = limit
	e.state.view.full = fullAnswer{}
}

// hearUpdate notes that overrides changed, and has the prober find out what. Called with mu held.
func (s *Scheduler) hearUpdate(version int64) {
	if version > s.heardVersion {
		s.heardVersion = version
		s.prod()
	}
}

// learnOverrides reads the overrides of the timers of this host, if there is something new. It is
// the prober's, and stops when until is closed.
func (s *Scheduler) learnOverrides(until <-chan struct{}) {
	ctl := s.store.caps.Controller
	s.lock()
	version := s.heardVersion
	if ctl == nil || version <= s.learntVersion {
		s.unlock()
		return
	}
	servers := make(map[string][]*entry) // one, or those of a store of several, of which none waits for another
	for _, e := range s.registry.registered() {
		if !e.timer.LocalOnly {
			shard := s.store.shardOf(e.lockName)
			servers[shard] = append(servers[shard], e)
		}
	}
	s.unlock()
	const batch = 500
	var missed atomic.Bool
	var all sync.WaitGroup
	for _, entries := range servers {
		all.Go(func() {
			for some := range slices.Chunk(entries, batch) {
				if s.learn(until, ctl, some) != nil {
					missed.Store(true) // the next probe asks again
					return
				}
			}
		})
	}
	all.Wait()
	if missed.Load() {
		return
	}
	s.lock()
	defer s.unlock()
	s.learntVersion = max(s.learntVersion, version)
}

// learn reads the overrides of some timers, with one call. What the store finds wrong with a few of
// them is logged; if they are many it is the store.
func (s *Scheduler) learn(until <-chan struct{}, ctl dlock.Controller, entries []*entry) error {
	select {
	case <-until:
		return context.Canceled
	default:
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.lockName
	}
	ctx, cancel := context.WithTimeout(s.base, s.config.StoreTimeout)
	defer cancel()
	list, err := readOverrides(ctx, ctl, names)
	if err != nil && !(errors.Is(err, dlock.ErrFault) && len(names) == 1) {
		return err
	}
	if err != nil {
		list = []dlock.ControlState{{Err: err}}
	}
	var failure error
	faults := 0
	for i, o := range list {
		switch {
		case o.Err == nil:
			s.takeOverrides(entries[i], o)
		case errors.Is(o.Err, dlock.ErrFault) && faults < 10:
			faults++
			s.log.Warn("timer: the overrides of a timer cannot be read", "timer", entries[i].timer.Name, "err", o.Err)
		default:
			failure = o.Err
		}
	}
	return failure
}

// readOverrides turns a panic of a store, and an answer to something else, into an error.
func readOverrides(ctx context.Context, ctl dlock.Controller, names []string) (list []dlock.ControlState, err error) {
	err = guard(func() (err error) { list, err = ctl.Inspect(ctx, names...); return err })
	if err == nil && len(list) != len(names) {
		err = fmt.Errorf("%d answers for %d names", len(list), len(names))
	}
	return list, err
}

// staleTrigger is how old a trigger may be that a host still obeys which comes to know of it late.
const staleTrigger = time.Minute

// takeOverrides takes in the overrides of a timer.
func (s *Scheduler) takeOverrides(e *entry, now dlock.ControlState) {
	s.lock()
	defer s.unlock()
	if e.gone.Load() || e.state.view.overrides.outdated(now.Version) {
		return
	}
	limit := 0
	if now.Limit != nil {
		limit = max(0, now.Limit.Slots)
	}
	switch {
	case now.Pause != nil:
		s.setPause(e, &now.Pause.Origin, now.Pause.For)
	case now.Limit != nil && limit == 0:
		s.setPause(e, &now.Limit.Origin, 0)
	default:
		s.setPause(e, nil, 0)
	}
	s.setLimit(e, limit)
	o, t := &e.state.view.overrides, now.Trigger
	if t == nil || !t.At.After(o.triggered) {
		return
	}
	o.triggered = t.At
	switch {
	case t.Ago >= staleTrigger:
	case s.registry.held(e) >= e.hostLimit(): // another host may have a place; if none has, this is all that anybody gets to see
		s.log.later(slog.LevelInfo, "timer: a run that was triggered does not start here: as many go on as may", "timer", e.timer.Name, "by", t.By, "note", t.Note)
	case s.registry.join():
		go s.runTriggered(e, *t)
	}
}

// triggerLock is a semaphore whose ticks are the triggers of a timer: whoever claims one runs it.
const triggerLock = "tickslot:trigger:"

// triggerSlots is more than one, so that a claim whose host died, or could not give it back, does
// not keep others from the next trigger until it ends.
const triggerSlots = 100

// runTriggered runs a timer that somebody triggered in the fleet, if no other host is to do it.
func (s *Scheduler) runTriggered(e *entry, t dlock.Trigger) {
	defer s.registry.done()
	name := e.timer.Name
	if !s.awaitTurn(s.base, e) {
		return // another host may
	}
	claim, err := s.session.Semaphore(triggerLock+name, triggerSlots).TryAcquireTick(s.base, dlock.Tick{At: t.At, Max: 1})
	s.lock()
	s.nextInLine()
	s.unlock()
	if err != nil {
		if r := reasonOf(err); r != ReasonTickTaken && r != ReasonTickLate { // else another host has it
			s.log.Warn("timer: a run that was triggered could not be claimed", "timer", name, "by", t.By, "note", t.Note, "err", err)
		}
		return
	}
	defer func() { _ = claim.Release(s.base) }() // what the store does not answer ends with its TTL
	if err := s.Trigger(s.base, name); err != nil {
		s.log.Warn("timer: a run that was triggered did not start", "timer", name, "by", t.By, "note", t.Note, "err", err)
		return
	}
	s.log.Info("timer: triggered", "timer", name, "by", t.By, "note", t.Note)
}
