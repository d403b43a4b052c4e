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

// Overrides are set through a Control. The store enforces them and reports them with every answer.
// A host learns of a change at its next tick. Because it constantly renews its slot of
// fleet.HostsLock, it also learns of a change within a heartbeat. Its prober reads the changes only
// when the version has changed.

// overrides are the overrides of this host's timers, as far as the host knows. Answers of the store
// and the prober update them. The gate, the acquirer, Status and the metrics read them.
type overrides struct {
	log      *lineLog
	registry *registry
	wake     func() // wakes the prober, which reads the changes

	heardVersion atomic.Int64 // the latest version of the overrides that the store has reported
	readVersion  int64        // the latest version that the prober has read; belongs to the prober
	readAll      atomic.Bool  // the prober must read everything again, even if it is already reading
	pauses       atomic.Bool  // whether any timer may be paused
}

// An override is what the store last reported for one timer. entry.mu guards it.
type override struct {
	limit atomic.Int32 // the overridden MaxConcurrency; 0 if none. May be read without the mutex

	paused      bool      // placed next to limit, where it takes no additional bytes
	version     int64     // the version of the latest report
	until       time.Time // when the pause ends; zero for a limit of 0, which has no end
	by          driver.Cause
	limitedBy   *driver.Cause // who set the limit, as read by the prober; nil if not known
	triggeredAt time.Time     // the time of the latest trigger for which this host looked at the queue
}

// refusal returns the error that refuses a start of a paused timer.
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

// advanceTo records the version of a report. It returns false if a later version was already
// recorded, because answers may arrive out of order. Version 0 is always recorded. It comes from a
// store that has no overrides or has lost them.
func (o *override) advanceTo(version int64) bool {
	if version != 0 && version < o.version {
		return false
	}
	o.version = version
	return true
}

// paused returns the refusal if the timer is paused as far as this host knows, or nil if it is not.
// It is needed while the store does not answer. For example, a timer that was paused for a database
// migration must not run while the database is gone.
func (o *overrides) paused(s *settings) error {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	if x := &s.entry.override; x.inForce() {
		return x.refusal(s)
	}
	return nil
}

// applyAnswer updates a timer's override from an answer of the store. no is nil if the store
// granted a slot.
func (o *overrides) applyAnswer(s *settings, info driver.Info, no *dlock.NotAcquiredError) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	x := &s.entry.override
	before := x.version
	if !x.advanceTo(info.Version) {
		return
	}
	if x.version != before {
		x.limitedBy = nil // until the prober has read who changed the limit
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

// setPause records who paused a timer and the rest of the pause. left is 0 for a limit of 0, which
// has no end. by is nil if the timer is not paused. The caller holds entry.mu.
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

// endPauses removes the pauses that have expired. The store reports nothing about timers that are
// not due.
func (o *overrides) endPauses() {
	if !o.pauses.Swap(false) {
		return // avoids a scan of up to a hundred thousand timers, because pauses are rare
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

// setLimit records the overridden MaxConcurrency, or 0 if there is none. The caller holds entry.mu.
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

// noteVersion records the version of the overrides that the store reported. It wakes the prober if
// the version is new.
func (o *overrides) noteVersion(version int64) {
	for heard := o.heardVersion.Load(); version > heard; heard = o.heardVersion.Load() {
		if o.heardVersion.CompareAndSwap(heard, version) {
			o.wake()
			return
		}
	}
}

// takeUnread returns the version that the prober has to read now. If readAgain was called, the
// prober has to read everything. ok is false if there is nothing to read.
func (o *overrides) takeUnread() (version int64, ok bool) {
	if o.readAll.Swap(false) {
		o.readVersion = 0
	}
	version = o.heardVersion.Load()
	return version, version > o.readVersion
}

// readAgain makes the prober read all overrides with its next probe, for timers that have begun to
// use the store since its last probe.
func (o *overrides) readAgain() { o.readAll.Store(true) }

// update updates a timer's override from the state that the prober has read. It reports whether the
// timer was triggered since.
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

// fill adds a timer's override to its status. The caller holds entry.mu.
func (o *overrides) fill(s *settings, t *TimerStatus) {
	if s.local { // Update has made the timer LocalOnly
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

// readBatch reads the overrides of some timers with one call. It logs faults of up to ten keys. If
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
