package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"

	"github.com/tickslot/tickslot/dlock"
)

const (
	// atOnce is how many leases of one call are renewed or released at the same time. More would only wait for a connection.
	atOnce = 16
)

// Extend implements dlock.DistributedLock.
func (q *Quorum) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	if q.fault == nil && ttl < time.Millisecond {
		return nil, fmt.Errorf("redislock: a TTL of %v: must be at least 1ms", ttl)
	}
	return q.each(ctx, grants, func(g dlock.Grant, patience time.Duration, hung *hung) dlock.Result {
		if g.Slot < 0 || g.Slot >= max(1, g.Slots) {
			return dlock.Result{Outcome: dlock.GrantLost}
		}
		nodes := q.nodes(patience, hung)
		key := q.slotKey(g.Name, g.Slots, g.Slot)
		extended, err := q.mutex(key, g.Token, ttl, nodes).ExtendContext(ctx)
		if !extended {
			return q.result(err)
		}
		// Servers that lost the key, or were away when it was set, get it back. They are a minority, so a release that comes in between
		// is not undone.
		nodes = slices.DeleteFunc(nodes, func(n redsyncredis.Pool) bool { return !n.(*node).lacks.Load() })
		if len(nodes) > 0 {
			_, _ = q.mutex(key, g.Token, ttl, nodes, redsync.WithSetNXOnExtend()).ExtendContext(ctx)
		}
		return dlock.Result{Outcome: dlock.GrantOK}
	})
}

// Release implements dlock.DistributedLock.
func (q *Quorum) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	return q.each(ctx, grants, func(g dlock.Grant, patience time.Duration, hung *hung) dlock.Result {
		release := func(slot int) dlock.Result {
			released, err := q.mutex(q.slotKey(g.Name, g.Slots, slot), g.Token, 0, q.nodes(patience, hung)).UnlockContext(ctx)
			if !released {
				return q.result(err)
			}
			return dlock.Result{Outcome: dlock.GrantOK}
		}
		switch {
		case g.Slot == dlock.AnySlot && g.Slots == 0:
			return release(0)
		case g.Slot == dlock.AnySlot:
			seen, err := q.look(ctx, patience, true, q.slotKeys(g.Name, g.Slots), g.Token)
			if err != nil {
				return dlock.Result{Err: err}
			}
			// A lease shows at one server at least. More than one slot shows if a request was late: all of them go.
			all := dlock.Result{Outcome: dlock.GrantLost}
			for _, i := range ours(seen) {
				if r := release(i); r.Outcome == dlock.GrantUnknown || all.Outcome == dlock.GrantLost {
					all = r
				}
			}
			return all
		case g.Slot < 0 || g.Slot >= max(1, g.Slots):
			return dlock.Result{Outcome: dlock.GrantLost}
		}
		return release(g.Slot)
	})
}

// each does it for every grant, several at once, and puts the answers in the order of the grants. Those of one token are done in
// their order.
func (q *Quorum) each(ctx context.Context, grants []dlock.Grant, do func(dlock.Grant, time.Duration, *hung) dlock.Result) ([]dlock.Result, error) {
	if q.fault != nil {
		return nil, q.fault
	}
	index := make(map[string]int, len(grants))
	var tokens [][]int
	for i, g := range grants {
		if err := checkGrant(&g); err != nil {
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
	// Two steps at most, and one wave of grants that finds out who hangs.
	patience := share(end(ctx), 4)
	hung := &hung{most: len(q.pools) - q.majority(), who: make([]bool, len(q.pools))}
	results := make([]dlock.Result, len(grants))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(tokens), atOnce) {
		wg.Go(func() {
			for t := next.Add(1) - 1; t < int64(len(tokens)); t = next.Add(1) - 1 {
				for _, i := range tokens[t] {
					if err := ctx.Err(); err != nil {
						results[i] = dlock.Result{Err: err}
						continue
					}
					results[i] = do(grants[i], patience, hung)
				}
			}
		})
	}
	wg.Wait()
	if len(results) > 0 && !slices.ContainsFunc(results, func(r dlock.Result) bool { return r.Outcome != dlock.GrantUnknown }) {
		return nil, results[0].Err
	}
	return results, nil
}

// result tells from redsync's error what became of a lease that it could not extend or release.
func (q *Quorum) result(err error) dlock.Result {
	if refused(err) >= q.majority() {
		return dlock.Result{Outcome: dlock.GrantLost}
	}
	return dlock.Result{Err: q.undecided(err)}
}
