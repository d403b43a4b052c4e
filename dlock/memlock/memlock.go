// Package memlock is a dlock store in the memory of one process, for services that run as a single
// process and for tests. Several schedulers ("hosts") in one process can share a Store and then
// share their limits.
//
// Its clock is time.Now, unless Clock is set, so its leases expire in virtual time inside a
// testing/synctest bubble.
//
// What it does not promise: anything between processes, or after a restart.
package memlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/startlog"
)

// idle: an unused name is forgotten after 40 days. Longer than a month, so that a monthly timer is
// remembered. Fences keep growing after that because they start from the time of day.
const idle = 40 * 24 * time.Hour

// Store implements driver.Store. The zero value is ready to use.
type Store struct {
	// Clock is what the store takes for the time. Tests set it, to find out what happens when the
	// clock is set forward or back. Set it before the first call. Default time.Now.
	Clock func() time.Time

	mu    sync.Mutex
	names map[key]*entry
	swept time.Time
}

// New returns an empty store.
func New() *Store { return &Store{} }

func (s *Store) String() string { return "memory" }

func (s *Store) now() time.Time {
	if s.Clock == nil {
		return time.Now()
	}
	return s.Clock()
}

// key distinguishes a mutex from a semaphore of the same name.
type key struct {
	name  string
	mutex bool
}

type entry struct {
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
	renewedAt  time.Time
	expiresAt  time.Time
	releasedAt time.Time // the slot is free; holder, fence and the first two instants are of its last lease

	revoked *driver.Cause
}

func (s *slot) held(now time.Time) bool { return s.token != "" && now.Before(s.expiresAt) }

// TryAcquire implements driver.Store.
func (s *Store) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Validate(); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweep(now)

	// 1. read: what is known of the name.
	e := s.entry(key{req.Name, req.Slots == 0})
	e.usedAt = now
	e.disbelieve(now)
	info := e.info(now)

	// 2. again: the lease that the token has.
	if g, ok, err := s.again(req, now); ok || err != nil {
		return g, err
	}
	refuse := func(reason driver.Reason) (driver.Grant, error) {
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Info: info}
	}
	delay := time.Duration(0)
	if req.Tick != nil {
		delay = req.Tick.Delay
	}

	// 3. first: a missed tick of a schedule that was not known when it came due.
	if t := req.Tick; t != nil && delay == 0 && e.first(*t, now) {
		return refuse(driver.ReasonTickFirst)
	}

	// 4. overrides: a pause, or a limit of 0.
	if no := e.overrides.refuse(req, now); no != nil {
		no.Info = info
		return driver.Grant{}, no
	}

	// 5. tick: it is started at most Max times, never after a later one, and not if it was missed
	// while a host had a lease.
	if t := req.Tick; t != nil && delay == 0 {
		at, missed := t.At.UnixMicro(), !t.MissedAt.IsZero()
		switch {
		case at > now.Add(driver.MaxTickAhead).UnixMicro():
			return refuse(driver.ReasonTickAhead)
		case at < e.tick:
			return refuse(driver.ReasonTickLate)
		case at == e.tick && (e.starts >= t.Max || missed):
			return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonTickTaken,
				Slots: req.Slots, Holder: e.claimer, Info: info}
		case missed && t.MissedAt.Before(e.lastHeld()):
			return refuse(driver.ReasonTickHeld)
		}
	}

	// 6. slot: one that is free.
	free, first := e.free(req.Slots, now)
	if delay > 0 && e.held(now) > 0 { // in any slot: a limit may have been raised or lowered
		free, first = -1, firstToEnd(e.slots, now)
	}
	if free < 0 {
		return driver.Grant{}, &driver.NotAcquiredError{
			Name: req.Name, Reason: driver.ReasonFull, Slots: req.Slots,
			Holder: first.holder, HeldFor: now.Sub(first.acquiredAt), ExpiresIn: first.expiresAt.Sub(now), Info: info,
		}
	}

	// 7. delay: counted from the end of the last lease, in any slot.
	if over := e.lastHeld().Add(delay); delay > 0 && now.Before(over) {
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonTickEarly,
			Slots:     req.Slots,
			ExpiresIn: over.Sub(now), Info: info}
	}

	// 8. shared: a slot of each further semaphore, or of none.
	var shared []driver.Grant
	if len(req.Shared) > 0 {
		var no *driver.NotAcquiredError
		if shared, no = s.takeShared(req, now); no != nil {
			no.Info = info
			return driver.Grant{}, no
		}
	}

	// 9. grant: the lease.
	g := e.take(free, req, driver.SemaphoreSpec{Name: req.Name, Slots: req.Slots}, now)
	g.Info, g.Shared = info, shared

	// 10. record: the start of the tick.
	if req.Tick != nil {
		at := req.Tick.At.UnixMicro()
		if delay > 0 {
			at = now.UnixMicro()
		}
		if at != e.tick {
			e.tick, e.starts = at, 0
		}
		e.starts++
		if e.schedule != req.Tick.Schedule {
			e.asked = asked{}
		}
		e.schedule, e.claimer = req.Tick.Schedule, req.Holder
	}
	return g, nil
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(_ *entry, sl *slot, _ driver.Grant, now time.Time) *driver.Cause {
		if sl.revoked == nil {
			sl.renewedAt, sl.expiresAt = now, now.Add(ttl)
		}
		return sl.revoked
	})
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(e *entry, sl *slot, grant driver.Grant, now time.Time) *driver.Cause {
		*sl = slot{holder: sl.holder, fence: sl.fence, acquiredAt: sl.acquiredAt, renewedAt: sl.renewedAt,
			releasedAt: now}
		e.releasedAt = now
		if grant.Succeeded {
			e.succeededAt = now
		}
		return nil
	})
}

// each calls do with the slot of every grant that its token still holds. do returns who revoked the
// lease, or nil.
func (s *Store) each(ctx context.Context, grants []driver.Grant,
	do func(*entry, *slot, driver.Grant, time.Time) *driver.Cause) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	results := make([]driver.Result, len(grants))
	for g, grant := range grants {
		results[g].Outcome = driver.GrantLost
		e := s.names[key{grant.Name, grant.Slots == 0}]
		if e == nil {
			continue
		}
		results[g].Info = driver.Info{DeclaredSlots: e.declared, Version: e.overrides.version}
		if i := e.find(grant.Token, now); i >= 0 && (grant.Slot == driver.AnySlot || grant.Slot == i) {
			e.usedAt = now
			if results[g].RevokedBy = do(e, &e.slots[i], grant, now); results[g].RevokedBy == nil {
				results[g].Outcome = driver.GrantOK
			}
		}
	}
	return results, nil
}

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	k := key{name, slots == 0}
	e := s.names[k]
	if e == nil {
		return nil, nil
	}
	var list []driver.LeaseInfo
	for i := range e.slots {
		if e.slots[i].held(now) {
			list = append(list, e.slots[i].info(k, i, now))
		}
	}
	return list, nil
}

func (s *Store) entry(k key) *entry {
	e := s.names[k]
	if e == nil {
		if s.names == nil {
			s.names = make(map[key]*entry)
		}
		e = &entry{}
		s.names[k] = e
	}
	return e
}

// disbelieve forgets what was noted while the clock was ahead: it would stop the timer, or hide
// that nothing runs, until the clock is there again. Leases that were renewed then end a TTL from
// now.
func (e *entry) disbelieve(now time.Time) {
	latest := now.Add(driver.MaxTickAhead)
	if e.tick > latest.UnixMicro() {
		e.tick, e.starts = 0, 0
	}
	for _, at := range []*time.Time{&e.asked.since, &e.succeededAt, &e.releasedAt, &e.overrides.resumedAt} {
		if at.After(latest) {
			*at = time.Time{}
		}
	}
	// Its holder trusts a lease for its TTL from when it was renewed last, and that is over.
	for i := range e.slots {
		if sl := &e.slots[i]; sl.renewedAt.After(latest) && sl.held(now) {
			sl.renewedAt, sl.expiresAt = now, now.Add(sl.expiresAt.Sub(sl.renewedAt))
		}
	}
}

// first reports whether a missed tick is of a schedule that is not known, or was not yet when the
// tick came due. From then on it is known.
func (e *entry) first(t driver.Tick, now time.Time) bool {
	switch {
	case t.MissedAt.IsZero(), t.At.After(now.Add(driver.MaxTickAhead)):
		return false
	case e.tick != 0 && e.schedule == t.Schedule:
		return false
	case !e.asked.since.IsZero() && e.asked.schedule == t.Schedule:
		return !t.MissedAt.After(e.asked.since)
	}
	e.asked = asked{t.Schedule, t.MissedAt}
	if t.MissedAt.After(now.Add(driver.MaxTickAhead)) {
		e.asked.since = now
	}
	return true
}

// sweep removes idle names, once an hour.
func (s *Store) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Hour {
		return
	}
	s.swept = now
	for k, e := range s.names {
		if now.Sub(e.usedAt) > idle && e.overrides.version == 0 {
			delete(s.names, k)
		}
	}
}

// info is what every answer to an acquire has.
func (e *entry) info(now time.Time) driver.Info {
	info := driver.Info{DeclaredSlots: e.declared, Version: e.overrides.version, SlotLimit: e.overrides.slots()}
	if !e.succeededAt.IsZero() {
		info.SuccessAge = max(now.Sub(e.succeededAt), time.Microsecond)
	}
	return info
}

// free returns a slot that can be granted, or -1 and the slot that ends first. slots is how many
// the request declares; 0: a mutex.
func (e *entry) free(slots int, now time.Time) (free int, first slot) {
	n := max(slots, 1)
	if limit := e.overrides.slots(); limit > 0 {
		n = limit
		if e.held(now) >= n { // in any slots: the limit may have been lowered
			return -1, firstToEnd(e.slots, now)
		}
	}
	known := e.slots[:min(n, len(e.slots))]
	free = slices.IndexFunc(known, func(sl slot) bool { return !sl.held(now) })
	if free < 0 && len(known) < n {
		free = len(known)
		e.slots = append(e.slots, slot{})
	}
	if free < 0 {
		first = firstToEnd(known, now)
	}
	return free, first
}

// take grants a free slot.
func (e *entry) take(free int, req driver.Request, l driver.SemaphoreSpec, now time.Time) driver.Grant {
	e.fence = max(e.fence+1, driver.Fence(now.UnixMicro()))
	e.declared = l.Slots
	expired := e.slots[free].token != "" // a release would have emptied the slot
	e.slots[free] = slot{token: req.Token, holder: req.Holder, fence: e.fence, acquiredAt: now, renewedAt: now,
		expiresAt: now.Add(req.TTL)}
	return driver.Grant{Name: l.Name, Slots: l.Slots, Slot: free, Token: req.Token, Fence: e.fence,
		PreviousExpired: expired}
}

// held counts the leases that have not ended.
func (e *entry) held(now time.Time) (n int) {
	for i := range e.slots {
		if e.slots[i].held(now) {
			n++
		}
	}
	return n
}

// CheckRate implements driver.RateLimiter.
func (s *Store) CheckRate(time.Duration) error { return nil }

// CheckDelay implements driver.Delayer.
func (s *Store) CheckDelay(time.Duration) error { return nil }

// lastHeld returns the latest time at which a lease was or will be held.
func (e *entry) lastHeld() time.Time {
	last := e.releasedAt
	for i := range e.slots {
		if e.slots[i].token != "" && e.slots[i].expiresAt.After(last) {
			last = e.slots[i].expiresAt
		}
	}
	return last
}

// firstToEnd returns the held slot that ends first.
func firstToEnd(slots []slot, now time.Time) (first slot) {
	for _, sl := range slots {
		if sl.held(now) && (first.expiresAt.IsZero() || sl.expiresAt.Before(first.expiresAt)) {
			first = sl
		}
	}
	return first
}

func (e *entry) find(token string, now time.Time) int {
	return slices.IndexFunc(e.slots, func(sl slot) bool { return sl.token == token && sl.held(now) })
}
