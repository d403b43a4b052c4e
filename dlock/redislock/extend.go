package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// This file implements Extend and Release. They handle many leases at once, whose names may be on
// different nodes of a Cluster.

// A batch is a call for some of the grants, given by their indexes.
type batch struct {
	call
	indexes []int
}

// Extend implements driver.Store. It never waits for a shared round trip.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if ttl < time.Millisecond || ttl > s.MaxTTL() {
		return nil, fmt.Errorf("redislock: a TTL of %v: must be 1ms to %v (QuarantineTTL)", ttl, s.MaxTTL())
	}
	batches, err := s.batches(grants, extendScript, []any{rediskit.Millis(ttl), rediskit.Millis(longRetention),
		rediskit.Millis(s.retention()), s.sharedKeys()}, func(run []int) []any {
		var words strings.Builder
		words.Grow(32 * len(run)) // a Session's tokens have 26 bytes
		for _, i := range run {
			words.WriteString(slotArg(&grants[i]))
			words.WriteByte(' ')
			words.WriteString(grants[i].Token)
			words.WriteByte(' ')
		}
		return []any{words.String()}
	})
	if err != nil {
		return nil, err
	}
	s.runBatches(ctx, batches)
	return s.results(ctx, batches, len(grants), parseExtend)
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	common := []any{rediskit.Millis(s.retention()), s.releaseRetentionMillis()}
	batches, err := s.batches(grants, releaseScript, common, func(run []int) []any {
		items := make([]any, 0, 3*len(run))
		for _, i := range run {
			g, succeeded := &grants[i], 0
			if g.Succeeded {
				succeeded = 1
			}
			items = append(items, slotArg(g), g.Token, succeeded)
		}
		return items
	})
	if err != nil {
		return nil, err
	}
	if len(batches) == 1 {
		b := batches[0]
		c := b.call // a copy, because do may still write to the call after ctx has ended
		if b.failure = s.batcher.do(ctx, &c); b.failure == nil {
			b.answer = c.answer
		}
	} else {
		s.runBatches(ctx, batches)
		for _, b := range batches {
			b.splitHead()
		}
	}
	return s.results(ctx, batches, len(grants), parseRelease)
}

// slotArg returns the number of a slot as an argument, or "" for a mutex.
func slotArg(g *driver.Grant) string {
	if g.Slots == 0 {
		return ""
	}
	return strconv.Itoa(g.Slot)
}

// batches divides the grants into runs of a script. A run has at most scriptItems leases. If keys
// must be on one node, a run has only one name.
func (s *Store) batches(grants []driver.Grant, script *rediskit.Script, common []any,
	items func(run []int) []any) ([]*batch, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	order := make([]int, len(grants))
	for i := range grants {
		if err := rediskit.CheckGrant(&grants[i]); err != nil {
			return nil, err
		}
		order[i] = i
	}
	if s.tagged && len(grants) > 1 {
		slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(grants[a].Name, grants[b].Name) })
	}
	batches := make([]*batch, 0, 1+len(grants)/scriptItems)
	for len(order) > 0 {
		n := 1
		for n < min(len(order), scriptItems) && (!s.tagged || grants[order[n]].Name == grants[order[0]].Name) {
			n++
		}
		run := order[:n:n]
		b := &batch{call{script: script, common: common, keys: s.states(grants, run), items: items(run)}, run}
		if s.tagged {
			b.shared = s.leases(grants, run)
		}
		batches, order = append(batches, b), order[n:]
	}
	return batches, nil
}

// states returns the keys of the states of a run's names.
func (s *Store) states(grants []driver.Grant, run []int) []string {
	keys := make([]string, len(run))
	for k, i := range run {
		keys[k] = s.state(grants[i].Name, grants[i].Slots == 0)
	}
	return keys
}

// leases returns the keys of a run's leases, which all belong to one name, and of its index or
// tokens. While a Cluster moves a slot, a node that has only some of the declared keys answers
// TRYAGAIN. If the keys were not declared, they would look missing there, and the leases would seem
// lost.
func (s *Store) leases(grants []driver.Grant, run []int) []string {
	k := s.keys(grants[run[0]].Name, grants[run[0]].Slots == 0)
	keys := make([]string, 0, len(run)+1)
	for _, i := range run {
		if g := &grants[i]; g.Slot != driver.AnySlot || g.Slots == 0 {
			keys = append(keys, k.base+slotArg(g))
		} else {
			keys = append(keys, k.base+"tokens")
		}
	}
	if k.index != "" {
		keys = append(keys, k.index)
	}
	return keys
}

func (s *Store) runBatches(ctx context.Context, batches []*batch) {
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = &b.call
	}
	runAll(ctx, s.client, calls)
}

// results parses the answers and returns the results in the order of the grants.
func (s *Store) results(ctx context.Context, batches []*batch, grants int,
	parse func(answer []any, indexes []int, results []driver.Result) error) ([]driver.Result, error) {
	results := make([]driver.Result, grants)
	failures := 0
	var failure error
	for _, b := range batches {
		err := b.failure
		if err == nil {
			err = parse(b.answer, b.indexes, results)
		}
		for _, i := range b.indexes {
			if err != nil {
				results[i] = driver.Result{Err: err}
			}
			if results[i].Err != nil {
				failures++
				failure = s.classifyError(ctx, results[i].Err)
				results[i].Err = failure
			}
		}
	}
	if failures > 0 && failures == grants {
		return nil, failure
	}
	return results, nil
}
