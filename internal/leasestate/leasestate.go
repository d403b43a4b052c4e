// Package leasestate is what a store knows of a name, and the steps that change it, for stores that
// do them in Go: in the memory of one process, or on a copy of a document that is written back if
// nobody else has written it.
//
// It has no lock, no clock and no storage: its caller keeps the states, tells the time, and makes
// the steps atomic.
package leasestate

import (
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/startlog"
)

// idle: an unused name is forgotten after 40 days. Longer than a month, so that a monthly timer is
// remembered. Fences keep growing after that because they start from the time of day.
const idle = 40 * 24 * time.Hour

// A Now is what the caller knows of the store's clock: it shows At, or up to Late more. A lease has
// ended when At is past its end, and the end of a new one counts from At+Late. So leases may last
// longer by what the caller does not know, and never end early.
type Now struct {
	At   time.Time
	Late time.Duration
}

// latest returns what the clock shows at most.
func (n Now) latest() time.Time { return n.At.Add(n.Late) }

// believed returns the latest instant that does not lie too far in the future.
func (n Now) believed() time.Time { return n.latest().Add(driver.MaxTickAhead) }

// A Key is a name, and whether it is a mutex: that of a semaphore of the same name is another.
type Key struct {
	Name  string
	Mutex bool
}

// KeyOf returns the key of a request or grant with so many slots.
func KeyOf(name string, slots int) Key { return Key{name, slots == 0} }

// A State is what a store knows of a name. The zero value knows nothing.
type State struct {
	slots       []slot
	declared    int // slots as declared by the latest grant
	fence       driver.Fence
	tick        int64 // the latest tick claimed, in microseconds
	starts      int   // of tick
	schedule    int64 // schedule of tick
	asked       asked
	usedAt      time.Time
	releasedAt  time.Time     // when a grant was last released
	succeededAt time.Time     // when a grant was last released as succeeded
	claimer     driver.Holder // who started tick last
	overrides   overrides
	rated       startlog.Log // starts that count towards a rate
}

// Clone returns a copy that a step can change.
func (s *State) Clone() *State {
	c := *s
	c.slots, c.rated = slices.Clone(s.slots), slices.Clone(s.rated)
	return &c
}

// asked is a schedule that a host has asked about before a tick of it was claimed. The zero value
// is none.
type asked struct {
	schedule int64
	since    time.Time
}

type slot struct {
	token      string
	holder     driver.Holder
	fence      driver.Fence
	acquiredAt time.Time
	renewedAt  time.Time // the end counts from it
	expiresAt  time.Time
	releasedAt time.Time // the slot is free; holder, fence and the first two instants are of its last lease

	revoked *driver.Cause
}

func (s *slot) held(now Now) bool { return s.token != "" && now.At.Before(s.expiresAt) }

// renew makes the lease of a slot last so long.
func (s *slot) renew(ttl time.Duration, now Now) {
	s.renewedAt, s.expiresAt = now.latest(), now.latest().Add(ttl)
}

// expiresIn returns how long until a lease that is held ends unless extended.
func (s *slot) expiresIn(now Now) time.Duration { return left(s.renewedAt, s.expiresAt, now) }

// left returns how much is left of what began and ends at some instants, and has not ended. Of a
// clock with a width that is not more than there ever was.
func left(began, ends time.Time, now Now) time.Duration {
	if now.Late == 0 {
		return ends.Sub(now.At)
	}
	return max(min(ends.Sub(now.latest()), ends.Sub(began)), time.Microsecond)
}

// Extend makes the lease of a grant last so long.
func (s *State) Extend(grant driver.Grant, ttl time.Duration, now Now) driver.Result {
	return s.change(grant, now, func(sl *slot) *driver.Cause {
		if sl.revoked == nil {
			sl.renew(ttl, now)
		}
		return sl.revoked
	})
}

// Release ends the lease of a grant.
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

// change calls do with the slot of a grant, if its token still holds it. do returns who revoked the
// lease, or nil.
func (s *State) change(grant driver.Grant, now Now, do func(*slot) *driver.Cause) driver.Result {
	r := driver.Result{Outcome: driver.GrantLost,
		Info: driver.Info{DeclaredSlots: s.declared, Version: s.overrides.version}}
	if i := s.find(grant.Token, now); i >= 0 && (grant.Slot == driver.AnySlot || grant.Slot == i) {
		s.usedAt = now.At
		if by := do(&s.slots[i]); by != nil {
			r.RevokedBy = new(*by) // its receiver may change it
		} else {
			r.Outcome = driver.GrantOK
		}
	}
	return r
}

// Held returns the leases that have not ended, by slot.
func (s *State) Held(k Key, now Now) (list []driver.LeaseInfo) {
	for i := range s.slots {
		if s.slots[i].held(now) {
			list = append(list, s.slots[i].info(k, i, now))
		}
	}
	return list
}

// Listed adds the leases that an enumeration has, by slot: those that have not ended, and those
// that were released a short time ago.
func (s *State) Listed(list []driver.LeaseInfo, k Key, now Now) []driver.LeaseInfo {
	for i := range s.slots {
		if s.slots[i].listed(now) {
			list = append(list, s.slots[i].info(k, i, now))
		}
	}
	return list
}

// HasListed reports whether Listed adds any.
func (s *State) HasListed(now Now) bool {
	return slices.ContainsFunc(s.slots, func(sl slot) bool { return sl.listed(now) })
}

// listed reports whether an enumeration has the slot's lease.
func (s *slot) listed(now Now) bool {
	return s.held(now) || !s.releasedAt.IsZero() && now.latest().Sub(s.releasedAt) < driver.ReleasedFor
}

// info describes the lease of a slot that is listed.
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

// Idle reports whether the name was not used for so long that it may be forgotten.
func (s *State) Idle(now Now) bool { return now.At.Sub(s.usedAt) > idle && s.overrides.version == 0 }

// disbelieve forgets what was noted while the clock was ahead: it would stop the timer, or hide
// that nothing runs, until the clock is there again. Leases that were renewed then end a TTL from
// now.
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
	// Its holder trusts a lease for its TTL from when it was renewed last, and that is over.
	for i := range s.slots {
		if sl := &s.slots[i]; sl.renewedAt.After(latest) && sl.held(now) {
			sl.renew(sl.expiresAt.Sub(sl.renewedAt), now)
		}
	}
}

// info is what every answer to an acquire has.
func (s *State) info(now Now) driver.Info {
	info := driver.Info{DeclaredSlots: s.declared, Version: s.overrides.version, SlotLimit: s.overrides.slots()}
	if !s.succeededAt.IsZero() {
		info.SuccessAge = max(now.At.Sub(s.succeededAt), time.Microsecond)
	}
	return info
}

// held counts the leases that have not ended.
func (s *State) held(now Now) (n int) {
	for i := range s.slots {
		if s.slots[i].held(now) {
			n++
		}
	}
	return n
}

// lastHeld returns the latest time at which a lease was or will be held.
func (s *State) lastHeld() time.Time {
	last := s.releasedAt
	for i := range s.slots {
		if s.slots[i].token != "" && s.slots[i].expiresAt.After(last) {
			last = s.slots[i].expiresAt
		}
	}
	return last
}

// firstToEnd returns the held slot that ends first.
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
