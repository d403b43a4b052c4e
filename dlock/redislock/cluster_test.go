package redislock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/redistest"
)

// clusterOf starts a Cluster of three and opens a store on it that grants on every node.
func clusterOf(t *testing.T, opts redislock.Options) (*redistest.Cluster, *redislock.Store) {
	t.Helper()
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	t.Cleanup(func() { client.Close() })
	opts.Prefix = shop
	store := open(t, client, opts)
	for deadline := time.Now().Add(10 * time.Second); ; {
		awake := 0
		for i := range 30 {
			g, err := store.TryAcquire(t.Context(), dlock.Request{Name: fmt.Sprintf("awake-%d", i), Slots: 1, Token: "awake", TTL: time.Second})
			if err == nil {
				_, err = store.Release(t.Context(), g)
			}
			if err == nil {
				awake++
			}
		}
		if awake == 30 {
			return cluster, store
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of 30 names are granted", awake)
		}
		time.Sleep(20 * time.Millisecond) // until the next try, bounded above
	}
}

// A node that hangs costs what lives on it: a call for many names has the answers of the other nodes.
//
// Fails when runAll makes one pipeline for all nodes.
func TestHungNodeCostsOnlyItsOwnNames(t *testing.T) {
	t.Parallel()
	cluster, store := clusterOf(t, redislock.Options{})
	ctx := t.Context()
	var names []string
	var grants []dlock.Grant
	for i := range 60 {
		name := fmt.Sprintf("job-%d", i)
		g, err := store.TryAcquire(ctx, dlock.Request{Name: name, Slots: 1, Token: "token", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Order(ctx, name, dlock.Change{Limit: &dlock.Limit{Order: ann, Slots: 7}}); err != nil {
			t.Fatal(err)
		}
		names, grants = append(names, name), append(grants, g)
	}
	hung := cluster.Nodes[1]
	lives := func(name string) bool { return masterOf(t, cluster, "{"+shop+name+"}") == hung }
	if err := hung.Pause(); err != nil {
		t.Fatal(err)
	}
	call := func(what string, do func(ctx context.Context) error, ok func(i int) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		defer cancel()
		if err := do(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		answered := 0
		for i, name := range names {
			if ok(i) {
				answered++
			}
			if ok(i) == lives(name) {
				t.Errorf("%s: %s: answered: %t; it lives on the node that hangs: %t", what, name, ok(i), lives(name))
			}
		}
		if answered == 0 || answered == len(names) {
			t.Errorf("%s: %d of %d names were answered", what, answered, len(names))
		}
	}
	var results []dlock.Result
	var orders []dlock.Orders
	call("extend", func(ctx context.Context) (err error) {
		results, err = store.Extend(ctx, quarantineTTL, grants...)
		return err
	}, func(i int) bool { return results[i].Outcome == dlock.OK })
	call("orders", func(ctx context.Context) (err error) {
		orders, err = store.Orders(ctx, names...)
		return err
	}, func(i int) bool { return orders[i].Err == nil && orders[i].Limit != nil })
	call("release", func(ctx context.Context) (err error) {
		results, err = store.Release(ctx, grants...)
		return err
	}, func(i int) bool { return results[i].Outcome == dlock.OK })
}
