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

// paused says why a timer does not run that the store said is paused; nil: it said so not, or the
// pause has ended by itself. It matters when the store does not answer: who pauses a timer because
// the database is being moved must not find it running when the database is gone.
func (v *views) paused(e *entry) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if o := &e.state.view.overrides; o.inForce() {
		return o.refusal(e)
	}
	return nil
}

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
func (v *views) applyOverrides(e *entry, info dlock.Info, no *dlock.NotAcquiredError) {
	if e.state.view.overrides.outdated(info.Version) {
		return
	}
	if no != nil && no.Reason == dlock.ReasonPaused {
		v.setPause(e, &no.PausedBy, no.ExpiresIn)
	} else {
		v.setPause(e, nil, 0)
	}
	v.setLimit(e, info.SlotLimit)
}

// setPause notes who has paused a timer, and for how long (0: open), or that nobody has. Called
// with mu held.
func (v *views) setPause(e *entry, by *dlock.Origin, left time.Duration) {
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
	v.pauses = v.pauses || o.paused
	if !o.paused {
		v.log.later(slog.LevelInfo, "timer: no longer paused", "timer", e.timer.Name)
		return
	}
	until := "resumed"
	if !o.until.IsZero() {
		until = o.until.UTC().Format(time.RFC3339)
	}
	v.log.later(slog.LevelInfo, "timer: paused in the whole fleet",
		"timer", e.timer.Name, "until", until, "by", o.by.By, "note", o.by.Note)
}

// endPauses notes which pauses have ended by themselves: of timers that are not due the store says
// nothing.
func (v *views) endPauses() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.pauses {
		return // there may be a hundred thousand timers, and hardly ever a pause
	}
	v.pauses = false
	for _, e := range v.registry.registered() {
		switch {
		case !e.state.view.overrides.paused:
		case e.state.view.overrides.inForce():
			v.pauses = true
		default:
			v.setPause(e, nil, 0)
		}
	}
}

// setLimit is called with mu held.
func (v *views) setLimit(e *entry, limit int) {
	w := &e.state.view
	if int(w.limit.Load()) == limit {
		return
	}
	if limit > 0 {
		v.log.later(slog.LevelInfo, "timer: MaxConcurrency is overridden in the fleet",
			"timer", e.timer.Name, "override", limit, "in_code", e.timer.MaxConcurrency)
	} else {
		v.log.later(slog.LevelInfo, "timer: MaxConcurrency is no longer overridden",
			"timer", e.timer.Name, "in_code", e.timer.MaxConcurrency)
	}
	w.limit.Store(int32(limit))
	w.full = fullAnswer{}
}

// heardOfUpdate notes that overrides changed, and reports whether this host knew of that.
func (v *views) heardOfUpdate(version int64) (isNew bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	isNew = version > v.heardVersion
	v.heardVersion = max(v.heardVersion, version)
	return isNew
}

// unread is the version of the overrides that this host has heard of and has yet to read. ok is
// false if there is none.
func (v *views) unread() (version int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heardVersion, v.heardVersion > v.learntVersion
}

func (v *views) read(version int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.learntVersion = version
}

// learnOverrides reads the overrides of the timers of this host, if there is something new. It
// stops when until is closed.
func (p *prober) learnOverrides(until <-chan struct{}) {
	w := p.watch
	version, ok := w.views.unread()
	if w.caps.Controller == nil || !ok {
		return
	}
	servers := make(map[string][]*entry) // one, or those of a store of several, of which none waits for another
	for _, e := range w.registry.registered() {
		if !e.timer.LocalOnly {
			shard := w.names.of(e.lockName)
			servers[shard] = append(servers[shard], e)
		}
	}
	const batch = 500
	var missed atomic.Bool
	var all sync.WaitGroup
	for _, entries := range servers {
		all.Go(func() {
			for some := range slices.Chunk(entries, batch) {
				if p.learn(until, some) != nil {
					missed.Store(true) // the next probe asks again
					return
				}
			}
		})
	}
	all.Wait()
	if !missed.Load() {
		w.views.read(version)
	}
}

// learn reads the overrides of some timers, with one call. What the store finds wrong with a few of
// them is logged; if they are many it is the store.
func (p *prober) learn(until <-chan struct{}, entries []*entry) error {
	w := p.watch
	select {
	case <-until:
		return context.Canceled
	default:
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.lockName
	}
	ctx, cancel := context.WithTimeout(w.base, w.timeout)
	defer cancel()
	list, err := readOverrides(ctx, w.caps.Controller, names)
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
			t := w.views.take(entries[i], o)
			if t != nil && w.registry.join() {
				go p.trigger(entries[i], *t)
			}
			w.log.flush()
		case errors.Is(o.Err, dlock.ErrFault) && faults < 10:
			faults++
			w.log.Warn("timer: the overrides of a timer cannot be read", "timer", entries[i].timer.Name, "err", o.Err)
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

// take takes in the overrides of a timer, and returns the trigger that this host is to obey; nil:
// there is none.
func (v *views) take(e *entry, now dlock.ControlState) *dlock.Trigger {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.gone.Load() || e.state.view.overrides.outdated(now.Version) {
		return nil
	}
	limit := 0
	if now.Limit != nil {
		limit = max(0, now.Limit.Slots)
	}
	switch {
	case now.Pause != nil:
		v.setPause(e, &now.Pause.Origin, now.Pause.For)
	case now.Limit != nil && limit == 0:
		v.setPause(e, &now.Limit.Origin, 0)
	default:
		v.setPause(e, nil, 0)
	}
	v.setLimit(e, limit)
	o, t := &e.state.view.overrides, now.Trigger
	if t == nil || !t.At.After(o.triggered) {
		return nil
	}
	o.triggered = t.At
	switch {
	case t.Ago >= staleTrigger:
		return nil
	// Another host may have a place; if none has, this is all that anybody gets to see.
	case v.registry.held(e) >= e.hostLimit():
		v.log.later(slog.LevelInfo, "timer: a run that was triggered does not start here: as many go on as may",
			"timer", e.timer.Name, "by", t.By, "note", t.Note)
		return nil
	}
	return t
}
