package timer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// Overrides are set through a Control and enforced by the store, which reports them with every
// answer. A host learns of a change with its next tick or, because it renews its slot of
// fleet.HostsLock all the time, within a heartbeat. Only then does its prober read what has
// changed.

// overrides are what this host knows of the overrides of its timers. Answers of the store and the
// prober update them; the gate, the acquirer, Status and the metrics read them.
type overrides struct {
	log      *lineLog
	registry *registry
	wake     func() // wakes the prober, which reads what has changed

	heardVersion atomic.Int64 // the latest version of the overrides that the store has reported
	readVersion  int64        // the latest version that the prober has read. The prober's
	readAll      atomic.Bool  // it has to read all again, even if it is reading now
	pauses       atomic.Bool  // a timer may be paused
}

// An override is what the store last reported for one timer. Guarded by entry.mu.
type override struct {
	limit atomic.Int32 // of MaxConcurrency; 0: there is none. Read without the mutex, too

	paused      bool      // next to limit, where it takes no more bytes
	version     int64     // of the latest report
	until       time.Time // when the pause ends; zero: when it is ended
	by          driver.Cause
	limitedBy   *driver.Cause // who set the limit, as the prober has read; nil: not known
	triggeredAt time.Time     // of the latest trigger that made this host look at the queue
}

// refusal returns the error for a start of a timer that is paused.
func (o *override) refusal(s *settings) error {
	no := &dlock.NotAcquiredError{Name: s.entry.lockName, Reason: dlock.ReasonPaused, Slots: s.timer.slots(),
		PausedBy: o.by}
	if !o.until.IsZero() {
		no.ExpiresIn = time.Until(o.until)
	}
	return no
}

// inForce reports whether the timer is paused and the pause has not expired.
func (o *override) inForce() bool {
	return o.paused && (o.until.IsZero() || time.Now().Before(o.until))
}

// advanceTo records the version of a report. It returns false if a later version was recorded
// before, because answers may arrive out of order. Version 0, from a store that has no overrides or
// has lost them, is always recorded.
func (o *override) advanceTo(version int64) bool {
	if version != 0 && version < o.version {
		return false
	}
	o.version = version
	return true
}

// paused returns the refusal of a timer that is paused, as far as this host knows; nil: it is not
// paused. It is needed while the store does not answer: a timer that was paused because its
// database is being moved must not run when the database is gone.
func (o *overrides) paused(s *settings) error {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	if x := &s.entry.override; x.inForce() {
		return x.refusal(s)
	}
	return nil
}

// applyAnswer updates a timer's override from an answer of the store. no is nil if a slot was
// granted.
func (o *overrides) applyAnswer(s *settings, info driver.Info, no *dlock.NotAcquiredError) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	x := &s.entry.override
	before := x.version
	if !x.advanceTo(info.Version) {
		return
	}
	if x.version != before {
		x.limitedBy = nil // until the prober has read who changed it
	}
	if no != nil && no.Reason == dlock.ReasonPaused {
		o.setPause(s, &no.PausedBy, no.ExpiresIn)
	} else {
		o.setPause(s, nil, 0)
	}
	o.setLimit(s, info.SlotLimit)
	if x.limitedBy != nil && no != nil {
		no.LimitedBy = *x.limitedBy
	}
}

// setPause records who paused a timer and how much of the pause is left (0: until it is ended). by
// is nil if the timer is not paused. Called with entry.mu held.
func (o *overrides) setPause(s *settings, by *driver.Cause, left time.Duration) {
	x := &s.entry.override
	was := x.paused
	x.paused, x.until = by != nil, time.Time{}
	if left > 0 {
		x.until = time.Now().Add(left)
	}
	if by != nil {
		x.by = *by
	}
	if x.paused == was {
		return
	}
	if !x.paused {
		o.log.later(slog.LevelInfo, "timer: no longer paused", "timer", s.timer.Name)
		return
	}
	o.pauses.Store(true)
	until := "resumed"
	if !x.until.IsZero() {
		until = x.until.UTC().Format(time.RFC3339)
	}
	o.log.later(slog.LevelInfo, "timer: paused in the whole fleet",
		"timer", s.timer.Name, "until", until, "by", x.by.By, "note", x.by.Note)
}

// endPauses removes the pauses that have expired, because the store reports nothing about timers
// that are not due.
func (o *overrides) endPauses() {
	if !o.pauses.Swap(false) {
		return // there may be a hundred thousand timers, and pauses are rare
	}
	for _, s := range o.registry.registered() {
		o.endPause(s)
	}
}

func (o *overrides) endPause(s *settings) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	switch x := &s.entry.override; {
	case !x.paused:
	case x.inForce():
		o.pauses.Store(true)
	default:
		o.setPause(s, nil, 0)
	}
}

// setLimit is called with entry.mu held.
func (o *overrides) setLimit(s *settings, limit int) {
	x := &s.entry.override
	if int(x.limit.Load()) == limit {
		return
	}
	if limit > 0 {
		o.log.later(slog.LevelInfo, "timer: MaxConcurrency is overridden in the fleet",
			"timer", s.timer.Name, "override", limit, "in_code", s.timer.MaxConcurrency)
	} else {
		o.log.later(slog.LevelInfo, "timer: MaxConcurrency is no longer overridden",
			"timer", s.timer.Name, "in_code", s.timer.MaxConcurrency)
	}
	x.limit.Store(int32(limit))
}

// noteVersion records the version of the overrides that the store reported, and wakes the prober if
// it is new.
func (o *overrides) noteVersion(version int64) {
	for heard := o.heardVersion.Load(); version > heard; heard = o.heardVersion.Load() {
		if o.heardVersion.CompareAndSwap(heard, version) {
			o.wake()
			return
		}
	}
}

// takeUnread returns the version that the prober has to read now, from the beginning if readAgain
// was called. ok is false if there is none.
func (o *overrides) takeUnread() (version int64, ok bool) {
	if o.readAll.Swap(false) {
		o.readVersion = 0
	}
	version = o.heardVersion.Load()
	return version, version > o.readVersion
}

// readAgain makes the prober read all overrides with its next probe, for timers that have begun to
// use the store since the last one.
func (o *overrides) readAgain() { o.readAll.Store(true) }

// update updates a timer's override from what the prober has read. It reports whether the timer was
// triggered since.
func (o *overrides) update(s *settings, now driver.ControlState) (triggered bool) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	x := &s.entry.override
	if s.removed() || !x.advanceTo(now.Version) {
		return false
	}
	limit := 0
	if now.Limit != nil {
		limit = max(0, now.Limit.Slots)
	}
	switch {
	case now.Pause != nil:
		o.setPause(s, &now.Pause.Cause, now.Pause.For)
	case now.Limit != nil && limit == 0:
		o.setPause(s, &now.Limit.Cause, 0)
	default:
		o.setPause(s, nil, 0)
	}
	o.setLimit(s, limit)
	x.limitedBy = nil
	if now.Limit != nil {
		x.limitedBy = &now.Limit.Cause
	}
	t := now.Trigger
	if t == nil || !t.At.After(x.triggeredAt) {
		return false
	}
	x.triggeredAt = t.At
	return true
}

// fill adds a timer's override to its status. Called with entry.mu held.
func (o *overrides) fill(s *settings, t *TimerStatus) {
	if s.local { // Update has made it LocalOnly
		return
	}
	x := &s.entry.override
	t.LimitOverride = int(x.limit.Load())
	if x.inForce() {
		t.Paused = &PauseStatus{Cause: x.by, Until: x.until}
	}
}

// readOverrides reads the overrides of this host's timers if their version is new. It stops when
// until is closed.
func (p *prober) readOverrides(until <-chan struct{}) {
	w := p.watch
	version, ok := w.overrides.takeUnread()
	if w.caps.Controller == nil || !ok {
		return
	}
	servers := make(map[string][]*settings) // by server, so that none waits for another
	for _, s := range w.registry.registered() {
		if !s.timer.LocalOnly {
			shard := w.names.of(s.entry.lockName)
			servers[shard] = append(servers[shard], s)
		}
	}
	const batch = 500
	var missed atomic.Bool
	var all sync.WaitGroup
	for _, timers := range servers {
		all.Go(func() {
			for some := range slices.Chunk(timers, batch) {
				if p.readBatch(until, some) != nil {
					missed.Store(true) // the next probe reads them again
					return
				}
			}
		})
	}
	all.Wait()
	if !missed.Load() {
		w.overrides.readVersion = version
	}
}

// readBatch reads the overrides of some timers with one call. It logs faults at up to ten keys; if
// there are more, it treats them as a failure of the store.
func (p *prober) readBatch(until <-chan struct{}, timers []*settings) error {
	w := p.watch
	select {
	case <-until:
		return context.Canceled
	default:
	}
	names := make([]string, len(timers))
	for i, s := range timers {
		names[i] = s.entry.lockName
	}
	ctx, cancel := context.WithTimeout(w.base, w.timeout)
	defer cancel()
	list, err := fleet.Inspect(ctx, w.caps.Controller, names)
	if err != nil && !(errors.Is(err, dlock.ErrFault) && len(names) == 1) {
		return err
	}
	if err != nil {
		list = []driver.ControlState{{Err: err}}
	}
	var failure error
	faults := 0
	for i, o := range list {
		switch {
		case o.Err == nil:
			if w.overrides.update(timers[i], o) {
				p.triggers.look(timers[i])
			}
			w.log.flush()
		case errors.Is(o.Err, dlock.ErrFault) && faults < 10:
			faults++
			w.log.Warn("timer: the overrides of a timer cannot be read", "timer", timers[i].timer.Name, "err", o.Err)
		default:
			failure = o.Err
		}
	}
	return failure
}
