package redlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

const (
	// atOnce is how many leases a call renews or releases in parallel. More would only wait for a
	// connection.
	atOnce = 16
)

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if s.Check() == nil && ttl < time.Millisecond {
		return nil, fmt.Errorf("redlock: a TTL of %v: must be at least 1ms", ttl)
	}
	return s.each(ctx, grants, func(g driver.Grant, patience time.Duration, hung *hung) driver.Result {
		if g.Slot < 0 || g.Slot >= max(1, g.Slots) {
			return driver.Result{Outcome: driver.GrantLost}
		}
		nodes := s.nodes(patience, hung)
		key := s.slotKey(g.Name, g.Slots, g.Slot)
		extended, err := s.mutex(key, g.Token, ttl, nodes).ExtendContext(ctx)
		if !extended {
			return s.result(err)
		}
		// Restore the key on servers that have lost it or that were down when it was set. They are
		// a minority, so this does not undo a concurrent release.
		nodes = slices.DeleteFunc(nodes, func(n redsyncredis.Pool) bool { return !n.(*node).lacks.Load() })
		if len(nodes) > 0 {
			_, _ = s.mutex(key, g.Token, ttl, nodes, redsync.WithSetNXOnExtend()).ExtendContext(ctx)
		}
		return driver.Result{Outcome: driver.GrantOK}
	})
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(g driver.Grant, patience time.Duration, hung *hung) driver.Result {
		release := func(slot int) driver.Result {
			released, err := s.mutex(s.slotKey(g.Name, g.Slots, slot), g.Token, 0,
				s.nodes(patience, hung)).UnlockContext(ctx)
			if !released {
				return s.result(err)
			}
			return driver.Result{Outcome: driver.GrantOK}
		}
		switch {
		case g.Slot == driver.AnySlot && g.Slots == 0:
			return release(0)
		case g.Slot == driver.AnySlot:
			seen, err := s.look(ctx, patience, true, s.slotKeys(g.Name, g.Slots), g.Token)
			if err != nil {
				return driver.Result{Err: err}
			}
			// A held lease is on at least one of the servers that answered. Late requests may have
			// taken several slots, so release all of them.
			all := driver.Result{Outcome: driver.GrantLost}
			for _, i := range ours(seen) {
				if r := release(i); r.Outcome == driver.GrantUnknown || all.Outcome == driver.GrantLost {
					all = r
				}
			}
			return all
		case g.Slot < 0 || g.Slot >= max(1, g.Slots):
			return driver.Result{Outcome: driver.GrantLost}
		}
		return release(g.Slot)
	})
}

// each calls do for every grant, several in parallel, and returns the results in the order of the
// grants. It handles grants with the same token in order.
func (s *Store) each(ctx context.Context, grants []driver.Grant,
	do func(driver.Grant, time.Duration, *hung) driver.Result) ([]driver.Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	index := make(map[string]int, len(grants))
	var tokens [][]int
	for i, g := range grants {
		if err := rediskit.CheckGrant(&g); err != nil {
			return nil, err
		}
		t, ok := index[g.Token]
		if !ok {
			t = len(tokens)
			index[g.Token] = t
			tokens = append(tokens, nil)
		}
		tokens[t] = append(tokens[t], i)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// There are at most two steps, and one batch of grants that finds the servers that hang.
	patience := share(end(ctx), 4)
	hung := &hung{most: len(s.pools) - s.majority(), who: make([]bool, len(s.pools))}
	results := make([]driver.Result, len(grants))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(tokens), atOnce) {
		wg.Go(func() {
			for t := next.Add(1) - 1; t < int64(len(tokens)); t = next.Add(1) - 1 {
				for _, i := range tokens[t] {
					if err := ctx.Err(); err != nil {
						results[i] = driver.Result{Err: err}
						continue
					}
					results[i] = do(grants[i], patience, hung)
				}
			}
		})
	}
	wg.Wait()
	if len(results) > 0 && !slices.ContainsFunc(results,
		func(r driver.Result) bool { return r.Outcome != driver.GrantUnknown }) {
		return nil, results[0].Err
	}
	return results, nil
}

// result converts redsync's error to the result for a lease that could not be extended or released.
func (s *Store) result(err error) driver.Result {
	if refused(err) >= s.majority() {
		return driver.Result{Outcome: driver.GrantLost}
	}
	return driver.Result{Err: s.undecided(err)}
}
