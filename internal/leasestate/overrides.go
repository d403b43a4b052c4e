package leasestate

import (
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// overrides are the pause, limit and trigger that an operator has set for a name at run time. The
// zero value overrides nothing.
type overrides struct {
	version   int64
	pause     driver.Cause
	pausedAt  time.Time // the pause's length counts from it
	until     time.Time // end of the pause, possibly in the past; zero if the pause was resumed early
	resumedAt time.Time // when a pause or a limit of 0 was last lifted
	limit     *driver.LimitOverride
	trigger   driver.Cause
	at        time.Time // when the trigger was set
	value     string
}

// slots returns the overriding limit. It returns 0 if there is no override or the limit is 0.
func (o *overrides) slots() int {
	if o.limit == nil {
		return 0
	}
	return o.limit.Slots
}

// refuse returns the refusal of a request that an override forbids, or nil if none does.
func (o *overrides) refuse(req driver.Request, now Now) *driver.NotAcquiredError {
	no := &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonPaused, Slots: req.Slots}
	switch {
	case now.At.Before(o.until):
		no.PausedBy, no.ExpiresIn = o.pause, left(o.pausedAt, o.until, now)
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

// Update changes the overrides of a semaphore. If it returns driver.ErrChanged, nothing was
// changed.
func (s *State) Update(update driver.Update, now Now) error {
	o, at := &s.overrides, now.At
	if v := update.Value; v != nil {
		if v.Version != o.version {
			return driver.ErrChanged
		}
		o.value = v.Text
	}
	o.version = max(o.version+1, at.UnixMicro())
	switch p := update.Pause; {
	case p != nil:
		o.pause, o.pausedAt, o.until = p.Cause, now.latest(), now.latest().Add(p.For)
	case update.Resume != nil && at.Before(o.until):
		// Setting until to now would start the pause again if the clock is ahead now and is set
		// back later.
		o.pause, o.until, o.resumedAt = *update.Resume, time.Time{}, at
	}
	lifted := func(by driver.Cause) { // ticks that came due under a limit of 0 were not missed
		if o.limit != nil && o.limit.Slots == 0 && o.until.Before(at) && o.resumedAt != at {
			o.pause, o.resumedAt = by, at
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
			time.UnixMicro(o.version) // later than the last trigger, even if the clock was set back
	}
	return nil
}

// Control returns the overrides of a semaphore and its latest tick.
func (s *State) Control(name string, now Now) driver.ControlState {
	o := &s.overrides
	c := driver.ControlState{Name: name, Version: o.version}
	if now.At.Before(o.until) {
		c.Pause = &driver.Pause{Cause: o.pause, For: left(o.pausedAt, o.until, now)}
	}
	if o.limit != nil {
		limit := *o.limit
		c.Limit = &limit
	}
	if !o.at.IsZero() {
		c.Trigger = &driver.Trigger{Cause: o.trigger, At: o.at, Age: max(0, now.At.Sub(o.at))}
	}
	if s.tick != 0 {
		c.LastTick, c.ClaimedBy = time.UnixMicro(s.tick), s.claimer
		c.LastTickAhead = s.tick > now.believed().UnixMicro()
	}
	return c
}

// Value returns the text stored under the name of a semaphore.
func (s *State) Value(now Now) driver.ValueState {
	if s.overrides.version == 0 {
		return driver.ValueState{}
	}
	return driver.ValueState{Text: s.overrides.value, Version: s.overrides.version, At: now.At}
}

// Revoke marks the lease of a slot as revoked. If it returns driver.ErrNotHeld, nothing was
// changed.
func (s *State) Revoke(slot int, fence driver.Fence, by driver.Cause, now Now) error {
	if slot < 0 || slot >= len(s.slots) || s.slots[slot].fence != fence || !s.slots[slot].held(now) {
		return driver.ErrNotHeld
	}
	if s.slots[slot].revoked == nil { // the first revocation is the one that is reported
		s.slots[slot].revoked = &by
	}
	return nil
}
