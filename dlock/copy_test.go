package dlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// Identical sessions, as after a process is copied with its memory, never send the same token. Each
// attempt takes its token from the system's random source, so the copies compete like any two
// hosts.
//
// Fails when tokens come from a generator in the session, seeded by its holder, or count its
// attempts.
func TestCopiesSendTokensOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tokens{DistributedLock: memlock.New(), seen: map[string]int{}}
		holder := dlock.NewHolder()
		const attempts, slots = 100, 3
		var wg sync.WaitGroup
		for range 2 {
			h := newHost(t, store, dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout, Holder: holder})
			for range attempts / 2 {
				wg.Go(func() {
					lease, err := h.Semaphore("job", slots).TryAcquire(bg)
					if errors.Is(err, dlock.ErrNotAcquired) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					if !lease.Valid() {
						t.Errorf("disturbed by the copy: %v", lease.Err())
					}
					if err := lease.Release(bg); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if len(store.seen) != attempts {
			t.Errorf("%d tokens for %d attempts", len(store.seen), attempts)
		}
		if store.granted != slots {
			t.Errorf("%d grants of %d slots", store.granted, slots)
		}
	})
}

// If a process is copied while it holds a lease, the lease is valid in both copies. The store
// cannot tell them apart, and calls of one count for the other. When one copy releases the lease,
// the other loses it by its next heartbeat. Neither can affect the next holder.
//
// Fails when a release goes by name and slot (memlock's find ignoring the token): the copy frees
// the new holder's slot. Fails when the heartbeat takes a lost lease for a renewed one: the copy
// stays valid beside the new holder.
func TestCopyOfAHeldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		original := newHost(t, store, dlock.SessionOptions{})
		first := original.take(t, "job", 1)
		// A session cannot be copied here, but the requests of its copy can be sent.
		twin := newHost(t, &copied{store, original.spy.granted().Token, ""}, dlock.SessionOptions{})
		second := twin.take(t, "job", 1)
		advance(3 * ttl)
		wantHeld(t, first)
		wantHeld(t, second)
		if first.Fence() != second.Fence() {
			t.Errorf("fences %d and %d: want one grant that two believe to have", first.Fence(), second.Fence())
		}

		if err := first.Release(bg); err != nil {
			t.Fatal(err)
		}
		next := newHost(t, store, dlock.SessionOptions{}).take(t, "job", 1)
		if next.Fence() <= second.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), second.Fence())
		}
		advance(ttl/3 + time.Second)
		wantLost(t, second)
		if err := second.Release(bg); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("release by the copy: %v, want ErrLost", err)
		}
		advance(3 * ttl)
		wantHeld(t, next)
		if free(t, store, "job", 1) != 0 {
			t.Error("the new holder's slot is free")
		}
		if err := next.Release(bg); err != nil {
			t.Error(err)
		}
	})
}

// tokens counts the tokens that sessions send.
type tokens struct {
	dlock.DistributedLock
	mu      sync.Mutex
	seen    map[string]int
	granted int
}

func (s *tokens) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := s.DistributedLock.TryAcquire(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[req.Token]++
	if err == nil {
		s.granted++
	}
	return g, err
}

// copied makes a session's only lease use another session's token.
type copied struct {
	dlock.DistributedLock
	token string
	own   string // the session's own token
}

func (s *copied) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.own, req.Token = req.Token, s.token
	g, err := s.DistributedLock.TryAcquire(ctx, req)
	g.Token = s.own
	return g, err
}

func (s *copied) theirs(grants []driver.Grant) []driver.Grant {
	all := make([]driver.Grant, len(grants))
	for i, g := range grants {
		g.Token = s.token
		all[i] = g
	}
	return all
}

func (s *copied) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return s.DistributedLock.Extend(ctx, ttl, s.theirs(grants)...)
}

func (s *copied) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.DistributedLock.Release(ctx, s.theirs(grants)...)
}
