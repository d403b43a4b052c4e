package caslock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// atOnce is how many documents one call reads or writes in parallel.
const atOnce = 16

// Store implements driver.Store on a Backend.
type Store struct {
	backend Backend
	known   cache
}

// New returns a store on a backend. It does not call the backend's server.
func New(backend Backend) *Store { return &Store{backend: backend} }

func (s *Store) String() string { return fmt.Sprint(s.backend) }

// Check implements driver.Checker.
func (s *Store) Check() error {
	if s.backend == nil {
		return errors.New("caslock: no backend: pass one to New")
	}
	if l := s.backend.Limits(); l.Bytes < 4096 || l.Together < 1 {
		return fmt.Errorf("caslock: a backend for documents of %d bytes, %d together: must be at least 4096 and 1",
			l.Bytes, l.Together)
	}
	return nil
}

// TryAcquire implements driver.Store.
func (s *Store) TryAcquire(ctx context.Context, req driver.Request) (g driver.Grant, err error) {
	if err := req.Validate(); err != nil {
		return g, err
	}
	keys := []string{keyOf(req.Name, req.Slots)}
	for _, l := range req.Shared {
		keys = append(keys, keyOf(l.Name, l.Slots))
	}
	if len(req.Shared) > 0 {
		if err := s.checkTogether(len(keys)); err != nil {
			return g, err
		}
	}
	var answer error
	err = s.change(ctx, keys, func(states []*leasestate.State, now leasestate.Now) {
		g, answer = leasestate.Acquire(req, now, states[0], states[1:]...)
	})
	if err == nil {
		err = answer
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return g, nil
}

// Extend implements driver.Store. It writes one document per name.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(st *leasestate.State, g driver.Grant, now leasestate.Now) driver.Result {
		return st.Extend(g, ttl, now)
	})
}

// Release implements driver.Store. It writes one document per name.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, (*leasestate.State).Release)
}

// each calls do for every grant. It handles all grants of one name in one step, and several names
// in parallel. An error for one name affects only the grants of that name.
func (s *Store) each(ctx context.Context, grants []driver.Grant,
	do func(*leasestate.State, driver.Grant, leasestate.Now) driver.Result) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var keys []string
	of := make(map[string][]int)
	for i, g := range grants {
		key := keyOf(g.Name, g.Slots)
		if of[key] == nil {
			keys = append(keys, key)
		}
		of[key] = append(of[key], i)
	}
	results := make([]driver.Result, len(grants))
	errs := inParallel(len(keys), func(k int) error {
		return s.change(ctx, keys[k:k+1], func(states []*leasestate.State, now leasestate.Now) {
			for _, i := range of[keys[k]] {
				results[i] = do(states[0], grants[i], now)
			}
		})
	})
	failed := 0
	for k, err := range errs {
		if err == nil {
			continue
		}
		failed++
		for _, i := range of[keys[k]] {
			results[i] = driver.Result{Outcome: driver.GrantUnknown, Err: err}
		}
	}
	if failed > 0 && failed == len(keys) {
		return nil, errs[0]
	}
	return results, nil
}

// inParallel calls do for 0 to n-1, at most atOnce at a time, and returns the errors by index.
func inParallel(n int, do func(int) error) []error {
	errs := make([]error, n)
	if n == 1 {
		errs[0] = do(0)
		return errs
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		errs[i] = guard.Goexit("backend") // stays if do calls runtime.Goexit
		wg.Go(func() {
			defer func() { <-places }()
			errs[i] = guard.Call("backend", func() error { return do(i) })
		})
	}
	wg.Wait()
	return errs
}

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, name string, slots int) (list []driver.LeaseInfo, err error) {
	k := leasestate.KeyOf(name, slots)
	err = s.read(ctx, keyOf(name, slots), func(st *leasestate.State, now leasestate.Now) { list = st.Held(k, now) })
	return list, err
}

// CheckShared implements driver.SharedLimiter.
func (s *Store) CheckShared(_ string, shared ...string) error {
	return s.checkTogether(1 + len(shared))
}

func (s *Store) checkTogether(documents int) error {
	if most := s.backend.Limits().Together; documents > most {
		return fmt.Errorf("caslock: %w: a request for %d names: %s writes at most %d documents in one step; use fewer "+
			"limits at once, or Redis or a database", driver.ErrFault, documents, s, most)
	}
	return nil
}

// CheckRate implements driver.RateLimiter.
func (s *Store) CheckRate(time.Duration) error { return s.checkTogether(2) }

// CheckDelay implements driver.Delayer.
func (s *Store) CheckDelay(time.Duration) error { return nil }

// ofMutex and ofSemaphore are key prefixes. They separate a mutex from the semaphore of the same
// name.
const ofMutex, ofSemaphore = "mutex:", "semaphore:"

func keyOf(name string, slots int) string {
	if slots == 0 {
		return ofMutex + name
	}
	return ofSemaphore + name
}

// MaxSlots implements driver.SlotBounder. It leaves a kilobyte of each document for other data.
func (s *Store) MaxSlots() int { return min(slotsIn(s.backend.Limits().Bytes), driver.MaxSlots) }

// slotsIn returns how many slots fit into a document of the given size. One slot takes 200 to 320
// bytes, including the name of its host.
func slotsIn(bytes int) int { return (bytes - 1024) / 320 }
