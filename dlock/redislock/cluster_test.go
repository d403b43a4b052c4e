package redislock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// clusterOf starts a Cluster of three and opens a store that grants on every node.
func clusterOf(t *testing.T, opts redislock.Options) (*redistest.Cluster, *redislock.Store) {
	t.Helper()
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	t.Cleanup(func() { client.Close() })
	opts.Prefix = shop
	store := open(t, client, opts)
	testkit.Eventually(t, opts.QuarantineTTL+10*time.Second, "all names are granted", func() error {
		awake := 0
		for i := range 30 {
			g, err := store.TryAcquire(t.Context(), driver.Request{Name: fmt.Sprintf("awake-%d", i), Slots: 1,
				Token: "awake", TTL: cmp.Or(opts.QuarantineTTL, quarantineTTL)})
			if err == nil {
				_, err = store.Release(t.Context(), g)
			}
			if err == nil {
				awake++
			}
		}
		if awake < 30 {
			return fmt.Errorf("%d of 30", awake)
		}
		return nil
	})
	return cluster, store
}

// A node that hangs affects only its own names. A call for many names returns the answers of the
// other nodes.
//
// Fails when runAll makes one pipeline for all nodes.
func TestHungNodeCostsOnlyItsOwnNames(t *testing.T) {
	t.Parallel()
	cluster, store := clusterOf(t, redislock.Options{})
	ctx := t.Context()
	var names []string
	var grants []driver.Grant
	for i := range 60 {
		name := fmt.Sprintf("job-%d", i)
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 1, Token: "token", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Update(ctx, name, driver.Update{Limit: &driver.LimitOverride{Cause: ann,
			Slots: 7}}); err != nil {
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
		ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
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
	var results []driver.Result
	var orders []driver.ControlState
	call("extend", func(ctx context.Context) (err error) {
		results, err = store.Extend(ctx, quarantineTTL, grants...)
		return err
	}, func(i int) bool { return results[i].Outcome != driver.GrantUnknown })
	call("inspect", func(ctx context.Context) (err error) {
		orders, err = store.Inspect(ctx, names...)
		return err
	}, func(i int) bool { return orders[i].Err == nil && orders[i].Limit != nil })
	call("release", func(ctx context.Context) (err error) {
		results, err = store.Release(ctx, grants...)
		return err
	}, func(i int) bool { return results[i].Outcome != driver.GrantUnknown })
}

// By default, go-redis asks any node about commands, even one that hangs. With the documented
// permissions, it asks again for each acquire.
//
// Fails when OwnPool leaves go-redis' routing policies on.
func TestAcquireAsksNoOtherNode(t *testing.T) {
	t.Parallel()
	cluster, store := clusterOf(t, redislock.Options{})
	for i := range 10 {
		if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "a-" + strconv.Itoa(i), Slots: 1,
			Token: "token",
			TTL:   quarantineTTL}); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range cluster.Nodes {
		info, err := node.Client().Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info, "cmdstat_command:") {
			t.Errorf("%s was asked what commands there are", node.Addr())
		}
	}
}

// If a node hangs for several trust windows, a process loses only its leases on that node, even if
// there are many. Other leases are renewed, and acquires on other nodes are as fast as before. When
// the node is back, it grants again, and slots released meanwhile are free there.
//
// "make proof WHAT=cluster" runs this test with 10,000 leases and the default TTL for half a
// minute.
//
// Fails when runAll makes one pipeline for all nodes, and when the Session has one renewQueue for
// all.
func TestHungNodeCostsOnlyItsOwnLeases(t *testing.T) {
	t.Parallel()
	count, hangs, ttl := testkit.Rounds(t, 600, 10_000), 9*time.Second, 3*time.Second
	if count == 10_000 {
		hangs, ttl = 30*time.Second, dlock.DefaultTTL
	}
	cluster, store := clusterOf(t, redislock.Options{QuarantineTTL: ttl})
	session := newSession(t, store, ttl, min(ttl/3, dlock.DefaultStoreTimeout))
	leases := make([]*dlock.Lease, count)
	var all sync.WaitGroup
	for from := range 16 {
		all.Go(func() {
			for i := from; i < len(leases); i += 16 {
				lease, err := session.Semaphore("job-"+strconv.Itoa(i), 1).Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				leases[i] = lease
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	// measure acquires on the other nodes, one after the other.
	hung := cluster.Nodes[1]
	lives := func(name string) bool { return store.Shard(name) == hung.Addr() }
	n := 0
	measure := func(until time.Time) (took []time.Duration) {
		for ; time.Now().Before(until); n++ {
			name := "other-" + strconv.Itoa(n)
			if lives(name) {
				continue
			}
			began := time.Now()
			lease, err := session.Mutex(name).TryAcquire(t.Context())
			took = append(took, time.Since(began))
			if err != nil {
				t.Errorf("on a node that is well: %v", err)
				return took
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("on a node that is well: %v", err)
			}
			time.Sleep(5 * time.Millisecond) // sets the pace; the test does not rely on it
		}
		slices.Sort(took)
		return took
	}
	before := measure(time.Now().Add(time.Second))
	if err := hung.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	meanwhile := measure(began.Add(hangs / 2))
	// Release waits for StoreTimeout only on the node that hangs.
	given := map[*dlock.Lease]bool{}
	for i := range 12 {
		lease := leases[i]
		given[lease] = true
		all.Go(func() {
			began := time.Now()
			err := lease.Release(t.Context())
			if took := time.Since(began); !lives(lease.Name()) && (err != nil || took > ttl/6) {
				t.Errorf("%s, on a node that is well, was released after %v: %v", lease.Name(), took, err)
			}
		})
	}
	all.Wait()
	meanwhile = append(meanwhile, measure(began.Add(hangs))...)
	slices.Sort(meanwhile)
	lost, kept, hit := 0, 0, 0
	var why error
	for _, lease := range leases {
		switch {
		case given[lease]:
		case lives(lease.Name()):
			if hit++; lease.Valid() {
				t.Errorf("%s is valid, but its node hangs for %v", lease.Name(), hangs)
			}
		case lease.Valid():
			kept++
		default:
			lost++
			why = lease.Err()
		}
	}
	if lost > 0 || kept == 0 || hit == 0 {
		t.Errorf("%d leases of the nodes that are well were lost, %d kept; e.g. %v", lost, kept, why)
	}
	if err := hung.Resume(); err != nil {
		t.Fatal(err)
	}
	p99 := func(took []time.Duration) time.Duration { return took[len(took)*99/100] }
	t.Logf("%d leases lost and %d kept on the nodes that are well, %d lived on the one that hung for %v; p99 of an "+
		"acquire: %v before, %v meanwhile",
		lost, kept, hit, hangs, p99(before), p99(meanwhile))
	ctx, cancel := context.WithTimeout(t.Context(), 3*ttl+10*time.Second)
	defer cancel()
	for i := range leases {
		if lease := leases[i]; given[lease] {
			again, err := session.Semaphore(lease.Name(), 1).Acquire(ctx)
			if err != nil {
				t.Errorf("%s, which was given back: %v", lease.Name(), err)
				continue
			}
			if err := again.Release(ctx); err != nil && !errors.Is(err, dlock.ErrLost) {
				t.Error(err)
			}
		}
	}
}

// A master of a Cluster is suspended, replaced and resumed. For a few milliseconds, until it learns
// of its successor, it grants to a host with open connections that has made no call meanwhile. The
// test shows the extent: a slot can be held twice, the second holder loses it with its next
// heartbeat, and its fence is the higher one.
//
// Fails when the old master keeps granting, or when its grant can be renewed.
func TestClusterMasterThatStoodStill(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	const ttl = time.Second
	cluster := redistest.NewClusterWithReplicas(t, 3, 1)
	opts := redislock.Options{QuarantineTTL: ttl}
	open := func(client redis.UniversalClient, opts redislock.Options) *redislock.Store {
		store := redislock.New(client, opts)
		t.Cleanup(func() { store.Close(); client.Close() })
		return store
	}
	onAll := func() *redislock.Store {
		return open(redis.NewClusterClient(&redis.ClusterOptions{Password: canary, Addrs: cluster.Addrs()}), opts)
	}
	acquire := func(store *redislock.Store, token string) (driver.Grant, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return store.TryAcquire(ctx, driver.Request{Name: "job", Slots: 1, Token: token, TTL: ttl})
	}
	take := func(store *redislock.Store, token string) (grant driver.Grant) {
		testkit.Eventually(t, testkit.Patience, "a grant", func() (err error) {
			grant, err = acquire(store, token)
			return err
		})
		return grant
	}
	extend := func(store *redislock.Store, grant driver.Grant) driver.GrantOutcome {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		results, err := store.Extend(ctx, ttl, grant)
		if err != nil {
			t.Log(err)
			return driver.GrantUnknown
		}
		return results[0].Outcome
	}
	take(onAll(), "before") // makes the name known
	victim := masterOf(t, cluster, "{job}:slot:index")
	// This host does not learn of the failover. It calls the old master even after the Cluster
	// names another.
	late := open(redis.NewClient(&redis.Options{Addr: victim.Addr(), Password: canary}),
		redislock.Options{QuarantineTTL: ttl, Keys: redislock.KeysTagged})
	_, _ = acquire(late, "connects")
	must(t, victim.Pause())
	defer victim.Resume()
	testkit.Eventually(t, testkit.Patience, "a replica takes over", func() error {
		node, err := cluster.Client().MasterForKey(t.Context(), "{job}:slot:index")
		if err == nil && node.Options().Addr == victim.Addr() {
			err = errors.New("no replica takes over")
			cluster.Client().ReloadState(t.Context())
		}
		return err
	})
	current := onAll()
	holder := take(current, "holder")
	resumed := time.Now()
	must(t, victim.Resume())
	var doubles []driver.Grant
	for attempt := 0; time.Since(resumed) < 3*time.Second; attempt++ {
		grant, err := acquire(late, fmt.Sprint("late", attempt))
		switch {
		case err == nil && time.Since(resumed) > 2*time.Second:
			t.Errorf("the old master grants %v after it went on", time.Since(resumed))
		case err == nil:
			doubles = append(doubles, grant)
		}
		if outcome := extend(current, holder); outcome == driver.GrantLost {
			t.Error("the holder's lease is lost")
		}
	}
	if len(doubles) > 1 {
		t.Errorf("the old master granted its one slot %d times", len(doubles))
	}
	for _, double := range doubles {
		if double.Fence <= holder.Fence {
			t.Errorf("fence %d was granted after %d", double.Fence, holder.Fence)
		}
		if outcome := extend(current, double); outcome != driver.GrantLost {
			t.Errorf("the second holder's heartbeat: %v", outcome)
		}
	}
	t.Logf("%d of one slot granted by the old master", len(doubles))
}
