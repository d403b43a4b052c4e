// Package memlock is a dlock store in the memory of one process, for single-process services and
// for tests. Several schedulers ("hosts") in one process can share a Store and its limits.
//
// The store's clock is time.Now unless Clock is set, so leases expire in virtual time inside a
// testing/synctest bubble.
//
// It promises nothing between processes or after a restart.
package memlock

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// Store implements driver.Store. The zero value is ready to use.
type Store struct {
	// Clock returns the store's time. Tests set it to simulate a clock that is set forward or back.
	// Set it before the first call. Default time.Now.
	Clock func() time.Time

	mu    sync.Mutex
	names map[leasestate.Key]*leasestate.State
	swept time.Time
}

// New returns an empty store.
func New() *Store { return &Store{} }

func (s *Store) String() string { return "memory" }

func (s *Store) now() leasestate.Now {
	if s.Clock == nil {
		return leasestate.Now{At: time.Now()}
	}
	return leasestate.Now{At: s.Clock()}
}

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
	var shared [driver.MaxShared]*leasestate.State // on the stack
	for i, l := range req.Shared {
		shared[i] = s.state(leasestate.Key{Name: l.Name})
	}
	return leasestate.Acquire(req, now, s.state(leasestate.KeyOf(req.Name, req.Slots)), shared[:len(req.Shared)]...)
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(e *leasestate.State, g driver.Grant, now leasestate.Now) driver.Result {
		return e.Extend(g, ttl, now)
	})
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, (*leasestate.State).Release)
}

// each calls do for every grant with the state of its name.
func (s *Store) each(ctx context.Context, grants []driver.Grant,
	do func(*leasestate.State, driver.Grant, leasestate.Now) driver.Result) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	results := make([]driver.Result, len(grants))
	for i, g := range grants {
		results[i].Outcome = driver.GrantLost
		if e := s.names[leasestate.KeyOf(g.Name, g.Slots)]; e != nil {
			results[i] = do(e, g, now)
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
	k := leasestate.KeyOf(name, slots)
	if e := s.names[k]; e != nil {
		return e.Held(k, s.now()), nil
	}
	return nil, nil
}

// CheckShared implements driver.SharedLimiter. It returns nil, because the store can take any names
// in one step.
func (s *Store) CheckShared(string, ...string) error { return nil }

// CheckRate implements driver.RateLimiter.
func (s *Store) CheckRate(time.Duration) error { return nil }

// CheckDelay implements driver.Delayer.
func (s *Store) CheckDelay(time.Duration) error { return nil }

func (s *Store) state(k leasestate.Key) *leasestate.State {
	e := s.names[k]
	if e == nil {
		if s.names == nil {
			s.names = make(map[leasestate.Key]*leasestate.State)
		}
		e = &leasestate.State{}
		s.names[k] = e
	}
	return e
}

// sweep removes idle names. It runs at most once an hour.
func (s *Store) sweep(now leasestate.Now) {
	if now.At.Sub(s.swept) < time.Hour {
		return
	}
	s.swept = now.At
	for k, e := range s.names {
		if e.Idle(now) {
			delete(s.names, k)
		}
	}
}
