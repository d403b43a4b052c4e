package leasestate

import (
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Acquire runs the steps of driver.Store on s, the state of the requested name, and on shared, the
// states of the request's further semaphores in the same order. If it returns an error, the states
// may have changed. The caller can drop these changes, except with driver.ReasonTickFirst: that
// refusal records the schedule.
func Acquire(req driver.Request, now Now, s *State, shared ...*State) (driver.Grant, error) {
	// 1. read: the information that every answer carries.
	s.usedAt = now.At
	s.disbelieve(now)
	info := s.info(now)

	// 2. again: extend the leases that the token already holds.
	if g, ok, err := again(req, now, s, shared); ok || err != nil {
		return g, err
	}
	refuse := func(reason driver.Reason) (driver.Grant, error) {
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Info: info}
	}
	delay := time.Duration(0)
	if req.Tick != nil {
		delay = req.Tick.Delay
	}

	// 3. first: refuse a missed tick if its schedule was unknown when the tick came due.
	if t := req.Tick; t != nil && delay == 0 && s.first(*t, now) {
		return refuse(driver.ReasonTickFirst)
	}

	// 4. overrides: refuse during a pause or under a limit of 0.
	if no := s.overrides.refuse(req, now); no != nil {
		no.Info = info
		return driver.Grant{}, no
	}

	// 5. tick: start it at most Max times, never after a later tick, and not if it was missed while
	// a host held a lease.
	if t := req.Tick; t != nil && delay == 0 {
		at, missed := t.At.UnixMicro(), !t.MissedAt.IsZero()
		switch {
		case at > now.At.Add(driver.MaxTickAhead).UnixMicro():
			return refuse(driver.ReasonTickAhead)
		case at < s.tick:
			return refuse(driver.ReasonTickLate)
		case at == s.tick && (s.starts >= t.Max || missed):
			return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonTickTaken,
				Slots: req.Slots, Holder: s.claimer, Info: info}
		case missed && t.MissedAt.Before(s.lastHeld()):
			return refuse(driver.ReasonTickHeld)
		}
	}

	// 6. slot: find a free one.
	free, first := s.free(req.Slots, now)
	if delay > 0 && s.held(now) > 0 { // in any slot, because a limit may have been raised or lowered
		free, first = -1, firstToEnd(s.slots, now)
	}
	if free < 0 {
		return driver.Grant{}, &driver.NotAcquiredError{
			Name: req.Name, Reason: driver.ReasonFull, Slots: req.Slots,
			Holder: first.holder, HeldFor: now.At.Sub(first.acquiredAt), ExpiresIn: first.expiresIn(now), Info: info,
		}
	}

	// 7. delay: measured from the end of the last lease in any slot.
	if over := s.lastHeld().Add(delay); delay > 0 && now.At.Before(over) {
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonTickEarly,
			Slots:     req.Slots,
			ExpiresIn: over.Sub(now.At) + now.Late, Info: info}
	}

	// 8. shared: take a slot of every further semaphore, or none at all.
	var grants []driver.Grant
	if len(req.Shared) > 0 {
		var no *driver.NotAcquiredError
		if grants, no = takeShared(req, now, shared); no != nil {
			no.Info = info
			return driver.Grant{}, no
		}
	}

	// 9. grant: take the slot.
	g := s.take(free, req, driver.SemaphoreSpec{Name: req.Name, Slots: req.Slots}, now)
	g.Info, g.Shared = info, grants

	// 10. record: count the start of the tick.
	if req.Tick != nil {
		at := req.Tick.At.UnixMicro()
		if delay > 0 {
			at = now.At.UnixMicro()
		}
		if at != s.tick {
			s.tick, s.starts = at, 0
		}
		s.starts++
		if s.schedule != req.Tick.Schedule {
			s.asked = asked{}
		}
		s.schedule, s.claimer = req.Tick.Schedule, req.Holder
	}
	return g, nil
}

// first reports whether the schedule of a missed tick is unknown, or was unknown when the tick came
// due. It records the schedule as known.
func (s *State) first(t driver.Tick, now Now) bool {
	latest := now.At.Add(driver.MaxTickAhead)
	switch {
	case t.MissedAt.IsZero(), t.At.After(latest):
		return false
	case s.tick != 0 && s.schedule == t.Schedule:
		return false
	case !s.asked.since.IsZero() && s.asked.schedule == t.Schedule:
		return !t.MissedAt.After(s.asked.since)
	}
	s.asked = asked{t.Schedule, t.MissedAt}
	if t.MissedAt.After(latest) {
		s.asked.since = now.At
	}
	return true
}

// free returns a slot that can be granted. If there is none, it returns -1 and the slot whose lease
// ends first.
func (s *State) free(slots int, now Now) (free int, first slot) {
	n := max(slots, 1)
	if limit := s.overrides.slots(); limit > 0 {
		n = limit
		if s.held(now) >= n { // in any slot, because the limit may have been lowered
			return -1, firstToEnd(s.slots, now)
		}
	}
	known := s.slots[:min(n, len(s.slots))]
	free = slices.IndexFunc(known, func(sl slot) bool { return !sl.held(now) })
	if free < 0 && len(known) < n {
		free = len(known)
		s.slots = append(s.slots, slot{})
	}
	if free < 0 {
		first = firstToEnd(known, now)
	}
	return free, first
}

func (s *State) take(free int, req driver.Request, l driver.SemaphoreSpec, now Now) driver.Grant {
	s.fence = max(s.fence+1, driver.Fence(now.At.UnixMicro()))
	s.declared = l.Slots
	expired := s.slots[free].token != "" // a release would have emptied the slot
	s.slots[free] = slot{token: req.Token, holder: req.Holder, fence: s.fence, acquiredAt: now.At}
	s.slots[free].renew(req.TTL, now)
	return driver.Grant{Name: l.Name, Slots: l.Slots, Slot: free, Token: req.Token, Fence: s.fence,
		PreviousExpired: expired}
}
