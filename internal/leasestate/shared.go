package leasestate

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/startlog"
)

// again extends the leases that the token of a request already holds and returns them. ok is false
// if the token holds none.
//
// The caller trusts the leases for a whole TTL from now, so they must last that long even if one of
// them was revoked meanwhile. The next Extend reports the revocation.
func again(req driver.Request, now Now, s *State, shared []*State) (g driver.Grant, ok bool, err error) {
	held, all := 0, 1+len(shared)
	if s.find(req.Token, now) >= 0 {
		held++
	}
	for _, l := range shared {
		if l.find(req.Token, now) >= 0 {
			held++
		}
	}
	switch held {
	case 0:
		return g, false, nil
	case all:
	default: // the token's remaining leases must be released before it gets new ones
		return g, false, fmt.Errorf("dlock: %w: of %d leases of one request %d have ended", driver.ErrFault, all,
			all-held)
	}
	g = s.again(req, driver.SemaphoreSpec{Name: req.Name, Slots: req.Slots}, now)
	for i, l := range req.Shared {
		g.Shared = append(g.Shared, shared[i].again(req, l, now))
	}
	return g, true, nil
}

// again extends the lease that the request's token holds on one name.
func (s *State) again(req driver.Request, l driver.SemaphoreSpec, now Now) driver.Grant {
	s.usedAt = now.At
	slot := s.find(req.Token, now)
	s.slots[slot].renew(req.TTL, now)
	return driver.Grant{Name: l.Name, Slots: l.Slots, Slot: slot, Token: req.Token, Fence: s.slots[slot].fence,
		Info: s.info(now)}
}

// takeShared takes a slot of every further semaphore, or none at all if one of them refuses.
func takeShared(req driver.Request, now Now, shared []*State) (grants []driver.Grant, no *driver.NotAcquiredError) {
	free := make([]int, len(req.Shared))
	for i, l := range req.Shared {
		s := shared[i]
		s.usedAt = now.At
		s.disbelieve(now)
		if no := s.overrides.refuse(driver.Request{Name: l.Name, Slots: l.Slots}, now); no != nil {
			return nil, limitFull(req, l, s, *no, now)
		}
		var first slot
		if free[i], first = s.free(l.Slots, now); free[i] < 0 {
			return nil, limitFull(req, l, s, driver.NotAcquiredError{Holder: first.holder,
				HeldFor: now.At.Sub(first.acquiredAt), ExpiresIn: first.expiresIn(now)}, now)
		}
		if wait := s.rateWait(l, now); wait > 0 {
			no := limitFull(req, l, s, driver.NotAcquiredError{ExpiresIn: wait + now.Late}, now)
			no.Reason = driver.ReasonLimitRate
			return nil, no
		}
	}
	for i, l := range req.Shared {
		s := shared[i]
		info := s.info(now)
		g := s.take(free[i], req, l, now)
		g.Info = info
		if l.Rate > 0 {
			s.rated = s.rated.Add(now.latest().UnixMicro(), l.Rate, startlog.Micros(l.Per), 1)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// rateWait returns how long until the rate of a further semaphore allows another start.
func (s *State) rateWait(l driver.SemaphoreSpec, now Now) time.Duration {
	if l.Rate == 0 {
		return 0
	}
	per := startlog.Micros(l.Per)
	s.rated, _ = s.rated.Disbelieve(now.latest().UnixMicro(), per, driver.MaxTickAhead.Microseconds())
	return time.Duration(s.rated.Wait(now.At.UnixMicro(), l.Rate, per)) * time.Microsecond
}

// limitFull returns the refusal of a request that a further semaphore refused.
func limitFull(req driver.Request, l driver.SemaphoreSpec, s *State, no driver.NotAcquiredError,
	now Now) *driver.NotAcquiredError {
	no.Name, no.Slots, no.Reason, no.Shared, no.SharedInfo = req.Name, req.Slots, driver.ReasonLimitFull, l, s.info(now)
	return &no
}
