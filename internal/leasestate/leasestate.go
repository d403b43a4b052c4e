// Package leasestate holds the state of a name and the steps that change it, for stores that run
// these steps in Go: in the memory of one process, or on a copy of a document that is written back
// if no other host has changed it.
//
// The package has no lock, no clock and no storage. Its caller keeps the states, passes the time,
// and makes each step atomic.
package leasestate

import (
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/startlog"
)

// idle is how long an unused name is remembered: 40 days, longer than the interval of a monthly
// timer. After a name is forgotten, its fences still grow, because they start from the time of day.
const idle = 40 * 24 * time.Hour

// A Now describes the store's clock as the caller knows it: the clock shows a time from At to
// At+Late. A lease ends when At reaches its end, and a new lease's TTL counts from At+Late. So a
// lease may last longer because of the uncertainty, but it never ends early.
type Now struct {
	At   time.Time
	Late time.Duration
}

// latest returns the latest time that the clock may show.
func (n Now) latest() time.Time { return n.At.Add(n.Late) }

// believed returns the latest instant that is not rejected as too far in the future.
func (n Now) believed() time.Time { return n.latest().Add(driver.MaxTickAhead) }

// A Key identifies a state. A mutex and a semaphore of the same name have separate states.
type Key struct {
	Name  string
	Mutex bool
}

// KeyOf returns the key of a request or grant. A request with 0 slots is for a mutex.
func KeyOf(name string, slots int) Key { return Key{name, slots == 0} }

// A State is everything that a store knows about a name. The zero value is an empty state.
type State struct {
	slots       []slot
	declared    int // slots declared by the latest grant
	fence       driver.Fence
	tick        int64 // the latest tick claimed, in microseconds
	starts      int   // of tick
	schedule    int64 // schedule of tick
	asked       asked
	usedAt      time.Time
	releasedAt  time.Time     // when a lease was last released
	succeededAt time.Time     // when a lease was last released after a success
	claimer     driver.Holder // who started tick last
	overrides   overrides
	rated       startlog.Log // starts that count toward a rate
}

// Clone returns a copy, so that a step on the copy leaves s unchanged.
func (s *State) Clone() *State {
	c := *s
	c.slots, c.rated = slices.Clone(s.slots), slices.Clone(s.rated)
	return &c
}

// asked records a schedule that a host asked about before any tick of it was claimed. The zero
// value means none.
type asked struct {
	schedule int64
	since    time.Time
}

type slot struct {
	token      string
	holder     driver.Holder
	fence      driver.Fence
	acquiredAt time.Time
	renewedAt  time.Time // the TTL counts from it
	expiresAt  time.Time
	releasedAt time.Time // if set, the slot is free, and the other fields describe its last lease

	revoked *driver.Cause
}

func (s *slot) held(now Now) bool { return s.token != "" && now.At.Before(s.expiresAt) }

// renew makes a lease last for ttl from now.
func (s *slot) renew(ttl time.Duration, now Now) {
	s.renewedAt, s.expiresAt = now.latest(), now.latest().Add(ttl)
}

// expiresIn returns how long until a held lease ends if nothing extends it.
func (s *slot) expiresIn(now Now) time.Duration { return left(s.renewedAt, s.expiresAt, now) }

// left returns the remaining time of a period that has not ended. If the clock is not known
// exactly, the result is at most the length of the period.
func left(began, ends time.Time, now Now) time.Duration {
	if now.Late == 0 {
		return ends.Sub(now.At)
	}
	return max(min(ends.Sub(now.latest()), ends.Sub(began)), time.Microsecond)
}

// Extend makes the lease of a grant last for ttl from now.
func (s *State) Extend(grant driver.Grant, ttl time.Duration, now Now) driver.Result {
	return s.change(grant, now, func(sl *slot) *driver.Cause {
		if sl.revoked == nil {
			sl.renew(ttl, now)
		}
		return sl.revoked
	})
}

// Release ends the lease of a grant and records whether its run succeeded.
func (s *State) Release(grant driver.Grant, now Now) driver.Result {
	return s.change(grant, now, func(sl *slot) *driver.Cause {
		*sl = slot{holder: sl.holder, fence: sl.fence, acquiredAt: sl.acquiredAt, renewedAt: sl.renewedAt,
			releasedAt: now.latest()}
		s.releasedAt = now.latest()
		if grant.Succeeded {
			s.succeededAt = now.At
		}
		return nil
	})
}

// change calls do with the slot of a grant if the grant's token still holds it. do returns the
// cause of a revocation, or nil.
func (s *State) change(grant driver.Grant, now Now, do func(*slot) *driver.Cause) driver.Result {
	r := driver.Result{Outcome: driver.GrantLost,
		Info: driver.Info{DeclaredSlots: s.declared, Version: s.overrides.version}}
	if i := s.find(grant.Token, now); i >= 0 && (grant.Slot == driver.AnySlot || grant.Slot == i) {
		s.usedAt = now.At
		if by := do(&s.slots[i]); by != nil {
			r.RevokedBy = new(*by) // a copy, because the caller may modify it
		} else {
			r.Outcome = driver.GrantOK
		}
	}
	return r
}

// Held returns the leases that have not ended, in slot order.
func (s *State) Held(k Key, now Now) (list []driver.LeaseInfo) {
	for i := range s.slots {
		if s.slots[i].held(now) {
			list = append(list, s.slots[i].info(k, i, now))
		}
	}
	return list
}

// Listed appends the leases that an enumeration shows, in slot order: those that have not ended and
// those released recently (driver.ReleasedFor).
func (s *State) Listed(list []driver.LeaseInfo, k Key, now Now) []driver.LeaseInfo {
	for i := range s.slots {
		if s.slots[i].listed(now) {
			list = append(list, s.slots[i].info(k, i, now))
		}
	}
	return list
}

// HasListed reports whether Listed would append any lease.
func (s *State) HasListed(now Now) bool {
	return slices.ContainsFunc(s.slots, func(sl slot) bool { return sl.listed(now) })
}

// listed reports whether an enumeration shows the slot's lease.
func (s *slot) listed(now Now) bool {
	return s.held(now) || !s.releasedAt.IsZero() && now.latest().Sub(s.releasedAt) < driver.ReleasedFor
}

// info describes the lease of a listed slot.
func (s *slot) info(k Key, n int, now Now) driver.LeaseInfo {
	l := driver.LeaseInfo{Name: k.Name, Mutex: k.Mutex, Slot: n, Holder: s.holder, Fence: s.fence,
		HeldFor:    now.At.Sub(s.acquiredAt),
		RenewedAgo: max(now.latest().Sub(s.renewedAt), time.Microsecond)}
	if s.releasedAt.IsZero() {
		l.ExpiresIn = s.expiresIn(now)
	} else {
		l.ReleasedAgo = max(now.latest().Sub(s.releasedAt), time.Microsecond)
	}
	return l
}

// Idle reports whether the name has been unused long enough to be forgotten.
func (s *State) Idle(now Now) bool { return now.At.Sub(s.usedAt) > idle && s.overrides.version == 0 }

// disbelieve drops times that were recorded while the clock was ahead. If they stayed, the timer
// would not start until the clock caught up, or nobody would see that it no longer runs. Leases
// renewed at such a time now end one TTL from now.
func (s *State) disbelieve(now Now) {
	latest := now.believed()
	if s.tick > latest.UnixMicro() {
		s.tick, s.starts = 0, 0
	}
	for _, at := range []*time.Time{&s.asked.since, &s.succeededAt, &s.releasedAt, &s.overrides.resumedAt} {
		if at.After(latest) {
			*at = time.Time{}
		}
	}
	// The last renewal is in the past, so the holder trusts its lease for at most one TTL from now.
	for i := range s.slots {
		if sl := &s.slots[i]; sl.renewedAt.After(latest) && sl.held(now) {
			sl.renew(sl.expiresAt.Sub(sl.renewedAt), now)
		}
	}
}

// info returns the information that every answer to an acquire carries.
func (s *State) info(now Now) driver.Info {
	info := driver.Info{DeclaredSlots: s.declared, Version: s.overrides.version, SlotLimit: s.overrides.slots()}
	if !s.succeededAt.IsZero() {
		info.SuccessAge = max(now.At.Sub(s.succeededAt), time.Microsecond)
	}
	return info
}

// held returns the number of leases that have not ended.
func (s *State) held(now Now) (n int) {
	for i := range s.slots {
		if s.slots[i].held(now) {
			n++
		}
	}
	return n
}

// lastHeld returns the latest time at which any lease was or will be held.
func (s *State) lastHeld() time.Time {
	last := s.releasedAt
	for i := range s.slots {
		if s.slots[i].token != "" && s.slots[i].expiresAt.After(last) {
			last = s.slots[i].expiresAt
		}
	}
	return last
}

// firstToEnd returns the held slot whose lease ends first.
func firstToEnd(slots []slot, now Now) (first slot) {
	for _, sl := range slots {
		if sl.held(now) && (first.expiresAt.IsZero() || sl.expiresAt.Before(first.expiresAt)) {
			first = sl
		}
	}
	return first
}

func (s *State) find(token string, now Now) int {
	return slices.IndexFunc(s.slots, func(sl slot) bool { return sl.token == token && sl.held(now) })
}
