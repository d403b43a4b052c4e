package memlock

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// overrides are the pause, limit and trigger set for a name at run time. The zero value sets
// nothing.
type overrides struct {
	version   int64
	pause     driver.Cause
	until     time.Time // end of the pause, which may be over; zero once it was ended before
	resumedAt time.Time // when a pause, or a limit of 0, was ended last
	limit     *driver.LimitOverride
	trigger   driver.Cause
	at        time.Time // of the trigger
	value     string
}

// slots returns the limit of the override, or 0 if there is none or it is 0.
func (o *overrides) slots() int {
	if o.limit == nil {
		return 0
	}
	return o.limit.Slots
}

// refuse returns the refusal of a request that an override forbids, or nil.
func (o *overrides) refuse(req driver.Request, now time.Time) *driver.NotAcquiredError {
	no := &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonPaused, Slots: req.Slots}
	switch {
	case now.Before(o.until):
		no.PausedBy, no.ExpiresIn = o.pause, o.until.Sub(now)
	case o.limit != nil && o.limit.Slots == 0:
		no.PausedBy = o.limit.Cause
	case req.Tick != nil && !req.Tick.MissedAt.IsZero() &&
		(req.Tick.MissedAt.Before(o.until) || req.Tick.MissedAt.Before(o.resumedAt)):
		no.PausedBy = o.pause
	default:
		return nil
	}
	return no
}

// Update implements driver.Controller.
func (s *Store) Update(ctx context.Context, name string, update driver.Update) error {
	if err := checkControl(ctx, name, update.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	o := &s.entry(key{name: name}).overrides
	if v := update.Value; v != nil {
		if v.Version != o.version {
			return driver.ErrChanged
		}
		o.value = v.Text
	}
	o.version = max(o.version+1, now.UnixMicro())
	switch p := update.Pause; {
	case p != nil:
		o.pause, o.until = p.Cause, now.Add(p.For)
	case update.Resume != nil && now.Before(o.until):
		// Not until = now: that would be a pause again if the clock is ahead, and is set back.
		o.pause, o.until, o.resumedAt = *update.Resume, time.Time{}, now
	}
	lifted := func(by driver.Cause) { // what came due under a limit of 0 was not missed
		if o.limit != nil && o.limit.Slots == 0 && o.until.Before(now) && o.resumedAt != now {
			o.pause, o.resumedAt = by, now
		}
	}
	switch l := update.Limit; {
	case l != nil:
		if l.Slots > 0 {
			lifted(l.Cause)
		}
		limit := *l
		o.limit = &limit
	case update.ResetLimit != nil:
		lifted(*update.ResetLimit)
		o.limit = nil
	}
	if update.Trigger != nil {
		o.trigger, o.at = *update.Trigger,
			time.UnixMicro(o.version) // later than the last trigger even if the clock was set back
	}
	return nil
}

// Inspect implements driver.Controller.
func (s *Store) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	list := make([]driver.ControlState, len(names))
	for i, name := range names {
		list[i].Name = name
		e := s.names[key{name: name}]
		if e == nil {
			continue
		}
		o := e.overrides
		list[i].Version = o.version
		if now.Before(o.until) {
			list[i].Pause = &driver.Pause{Cause: o.pause, For: o.until.Sub(now)}
		}
		if o.limit != nil {
			limit := *o.limit
			list[i].Limit = &limit
		}
		if !o.at.IsZero() {
			list[i].Trigger = &driver.Trigger{Cause: o.trigger, At: o.at, Age: max(0, now.Sub(o.at))}
		}
		if e.tick != 0 {
			list[i].LastTick, list[i].ClaimedBy = time.UnixMicro(e.tick), e.claimer
			list[i].LastTickAhead = e.tick > now.Add(driver.MaxTickAhead).UnixMicro()
		}
	}
	return list, nil
}

// Value implements driver.Controller.
func (s *Store) Value(ctx context.Context, name string) (driver.ValueState, error) {
	if err := checkControl(ctx, name, nil); err != nil {
		return driver.ValueState{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[key{name: name}]
	if e == nil || e.overrides.version == 0 {
		return driver.ValueState{}, nil
	}
	return driver.ValueState{Text: e.overrides.value, Version: e.overrides.version, At: s.now()}, nil
}

// Revoke implements driver.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	if err := checkControl(ctx, name, by.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[key{name: name}]
	if e == nil || slot < 0 || slot >= len(e.slots) || e.slots[slot].fence != fence || !e.slots[slot].held(s.now()) {
		return driver.ErrNotHeld
	}
	if e.slots[slot].revoked == nil { // the first revocation is the one reported
		e.slots[slot].revoked = &by
	}
	return nil
}

func checkControl(ctx context.Context, name string, err error) error {
	if err == nil {
		err = driver.CheckName(name)
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}
