package memlock

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/startlog"
)

// CheckShared implements driver.SharedLimiter: all names can be taken in one step.
func (s *Store) CheckShared(string, ...string) error { return nil }

// again extends the leases that the token of a request holds, and returns them. ok is false if it
// holds none.
//
// The caller trusts them for a whole TTL from now, so they must last that long, even if one was
// revoked meanwhile; the next Extend reports the revocation.
func (s *Store) again(req driver.Request, now time.Time) (g driver.Grant, ok bool, err error) {
	locks := make([]driver.SemaphoreSpec, 0, 1+driver.MaxShared) // on the stack
	locks = append(append(locks, driver.SemaphoreSpec{Name: req.Name, Slots: req.Slots}), req.Shared...)
	held := 0
	for _, l := range locks {
		if e := s.names[key{l.Name, l.Slots == 0}]; e != nil && e.find(req.Token, now) >= 0 {
			held++
		}
	}
	switch held {
	case 0:
		return g, false, nil
	case len(locks):
	default: // what is left of it must be released before anything is granted to it
		return g, false, fmt.Errorf("memlock: %w: of %d leases of one request %d have ended", driver.ErrFault,
			len(locks), len(locks)-held)
	}
	for i, l := range locks {
		e := s.entry(key{l.Name, l.Slots == 0})
		e.usedAt = now
		slot := e.find(req.Token, now)
		e.slots[slot].renewedAt, e.slots[slot].expiresAt = now, now.Add(req.TTL)
		part := driver.Grant{Name: l.Name, Slots: l.Slots, Slot: slot, Token: req.Token, Fence: e.slots[slot].fence,
			Info: e.info(now)}
		if i == 0 {
			g = part
		} else {
			g.Shared = append(g.Shared, part)
		}
	}
	return g, true, nil
}

// takeShared takes a slot of each further semaphore, or of none if one refuses.
func (s *Store) takeShared(req driver.Request, now time.Time) (grants []driver.Grant, no *driver.NotAcquiredError) {
	free := make([]int, len(req.Shared))
	for i, l := range req.Shared {
		e := s.entry(key{name: l.Name})
		e.usedAt = now
		e.disbelieve(now)
		if no := e.overrides.refuse(driver.Request{Name: l.Name, Slots: l.Slots}, now); no != nil {
			return nil, limitFull(req, l, e, *no, now)
		}
		var first slot
		if free[i], first = e.free(l.Slots, now); free[i] < 0 {
			return nil, limitFull(req, l, e, driver.NotAcquiredError{Holder: first.holder,
				HeldFor: now.Sub(first.acquiredAt), ExpiresIn: first.expiresAt.Sub(now)}, now)
		}
		if wait := e.rateWait(l, now); wait > 0 {
			no := limitFull(req, l, e, driver.NotAcquiredError{ExpiresIn: wait}, now)
			no.Reason = driver.ReasonLimitRate
			return nil, no
		}
	}
	for i, l := range req.Shared {
		e := s.entry(key{name: l.Name})
		info := e.info(now)
		g := e.take(free[i], req, l, now)
		g.Info = info
		if l.Rate > 0 {
			e.rated = e.rated.Add(now.UnixMicro(), l.Rate, startlog.Micros(l.Per), 1)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// rateWait returns how long until the rate of a further semaphore allows another start.
func (e *entry) rateWait(l driver.SemaphoreSpec, now time.Time) time.Duration {
	if l.Rate == 0 {
		return 0
	}
	at, per := now.UnixMicro(), startlog.Micros(l.Per)
	e.rated, _ = e.rated.Disbelieve(at, per, driver.MaxTickAhead.Microseconds())
	return time.Duration(e.rated.Wait(at, l.Rate, per)) * time.Microsecond
}

// limitFull returns the refusal of a request because of a further semaphore.
func limitFull(req driver.Request, l driver.SemaphoreSpec, e *entry, no driver.NotAcquiredError,
	now time.Time) *driver.NotAcquiredError {
	no.Name, no.Slots, no.Reason, no.Shared, no.SharedInfo = req.Name, req.Slots, driver.ReasonLimitFull, l, e.info(now)
	return &no
}
