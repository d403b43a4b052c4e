package redislock_test

import (
	"errors"
	"runtime"
	"slices"
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

// While a slot of the Cluster moves to another node key by key, no other holder gets a name in the
// slot, wherever the name's keys are. The holder keeps its lease and renews it on the new node.
//
// Fails when a script treats a key that has not been moved yet as missing.
func TestI1ReshardingUnderALease(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	cluster, store := clusterOf(t, redislock.Options{})
	var all sync.WaitGroup
	for _, mutex := range []bool{false, true} {
		for _, first := range []string{"state", "index", "tokens", "lease"} {
			if mutex && (first == "index" || first == "tokens") {
				continue
			}
			all.Go(func() { reshard(t, cluster, store, mutex, first) })
		}
	}
	all.Wait()
}

var migrating sync.Mutex

func reshard(t *testing.T, cluster *redistest.Cluster, store *redislock.Store, mutex bool, first string) {
	t.Helper()
	ctx := t.Context()
	fatal := func(format string, args ...any) {
		t.Helper()
		t.Errorf(format, args...)
		runtime.Goexit()
	}
	kind := map[bool]string{false: "semaphore", true: "mutex"}[mutex]
	name := "moves-" + kind + "-" + first
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
	other := newSession(t, store, quarantineTTL, quarantineTTL/3)
	acquire := func(s *dlock.Session) (*dlock.Lease, error) {
		if mutex {
			return s.Mutex(name).TryAcquire(ctx)
		}
		return s.Semaphore(name, 1).TryAcquire(ctx)
	}
	lease, err := acquire(session)
	if err != nil {
		fatal("%v", err)
	}
	from := masterOf(t, cluster, "{"+shop+name+"}")
	to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3]
	slot, err := from.Client().ClusterKeySlot(ctx, "{"+shop+name+"}").Result()
	if err != nil {
		fatal("%v", err)
	}
	do := func(s *redistest.Server, args ...any) {
		t.Helper()
		if err := s.Client().Do(ctx, args...).Err(); err != nil {
			fatal("%v: %v", args, err)
		}
	}
	id := func(s *redistest.Server) string {
		id, err := s.Client().ClusterMyID(ctx).Result()
		if err != nil {
			fatal("%v", err)
		}
		return id
	}
	check := func(when string) {
		t.Helper()
		again, err := acquire(other)
		if err == nil {
			if lease.Valid() {
				t.Errorf("%s, %s first, %s: two valid leases of a semaphore of 1", kind, first, when)
			}
			_ = again.Release(ctx)
		} else if errors.Is(err, driver.ErrFault) || errors.Is(err, driver.ErrSetup) {
			t.Errorf("%s, %s first, %s: %v, which passes by itself", kind, first, when, err)
		}
	}
	migrating.Lock() // one slot at a time, because a node that sends a key waits and cannot receive one meanwhile
	unlock := sync.OnceFunc(migrating.Unlock)
	defer unlock()
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	check("nothing has moved")
	keys, err := from.Client().ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
	if err != nil {
		fatal("%v", err)
	}
	suffix := map[string]string{"state": ":slot:state", "index": ":slot:index", "tokens": ":slot:tokens",
		"lease": ":slot:0"}[first]
	if mutex {
		suffix = map[string]string{"state": ":slot:mutex", "lease": "}"}[first]
	}
	slices.SortFunc(keys, func(a, b string) int {
		return map[bool]int{true: -1}[strings.HasSuffix(a, suffix)] - map[bool]int{true: -1}[strings.HasSuffix(b,
			suffix)]
	})
	began := time.Now()
	for i, key := range keys {
		do(from, "MIGRATE", "127.0.0.1", to.Port(), "", 0, 1000, "AUTH", canary, "KEYS", key)
		check("after " + key)
		if i == 0 {
			// This leaves time for a heartbeat, which the node asks to retry. The test does not
			// rely on one.
			time.Sleep(quarantineTTL / 4)
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	do(from, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	unlock()
	halfway := time.Since(began)
	// The pause between two checks saves CPU time; the test does not rely on it.
	for deadline := time.Now().Add(2 * quarantineTTL); time.Now().Before(deadline); time.Sleep(quarantineTTL / 10) {
		check("all has moved")
	}
	if !lease.Valid() {
		if halfway > quarantineTTL/2 {
			t.Logf("%s, %s first: its keys were half-way for %v, longer than the lease could bear: %v", kind, first,
				halfway, lease.Err())
			return
		}
		t.Errorf("%s, %s first: the lease was lost: %v", kind, first, lease.Err())
	}
	if err := lease.Release(ctx); err != nil {
		t.Errorf("%s, %s first: %v", kind, first, err)
	}
	// The new node waits until leases that it does not know have ended.
	if err := testkit.Poll(3*quarantineTTL, "a grant", func() error {
		_, err := acquire(other)
		return err
	}); err != nil {
		fatal("%s, %s first, after its release: %v", kind, first, err)
	}
}

// While a slot of the Cluster moves key by key, no call creates a key on one node that still exists
// on the other, because that would end the move. The calls are a release, and a heartbeat that must
// add its name.
//
// Fails when a script does not check whether the keys are being moved.
func TestReshardingMeetsNoKeyTwice(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster, _ := clusterOf(t, redislock.Options{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	defer client.Close()
	const prefix = shop + "{moves}:"
	const key, ttl = "{" + prefix + "}", 20 * time.Second
	first := open(t, client, redislock.Options{Prefix: prefix})
	store := open(t, client, redislock.Options{Prefix: prefix, QuarantineTTL: ttl})
	ctx := t.Context()
	do := func(s *redistest.Server, args ...any) *redis.Cmd {
		t.Helper()
		cmd := s.Client().Do(ctx, args...)
		if err := cmd.Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return cmd
	}
	from := masterOf(t, cluster, key)
	to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3]
	slot := do(from, "CLUSTER", "KEYSLOT", key).Val()
	source, target := do(from, "CLUSTER", "MYID").Val(), do(to, "CLUSTER", "MYID").Val()
	var grants []driver.Grant
	for _, lock := range []driver.SemaphoreSpec{{Name: "mutex"}, {Name: "semaphore", Slots: 2}} {
		req := driver.Request{Name: lock.Name, Slots: lock.Slots, Token: "first", TTL: quarantineTTL}
		testkit.Eventually(t, 30*time.Second, "the node grants", func() error {
			g, err := first.TryAcquire(ctx, req)
			if err == nil {
				_, err = first.Release(ctx, g)
			}
			return err
		})
		req.Token, req.TTL = "second", ttl
		g, err := store.TryAcquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
		suffix := map[int]string{0: ":slot:mutex", 2: ":slot:state"}[lock.Slots]
		do(from, "HSET", "{"+prefix+lock.Name+"}"+suffix, "kept", 1) // makes the next heartbeat add the name
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	keys, err := from.Client().ClusterGetKeysInSlot(ctx, int(slot.(int64)), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	var last []string
	for _, key := range keys {
		if strings.Contains(key, "}:slot:released") || strings.HasSuffix(key, "}:slot:names") ||
			strings.HasSuffix(key, "}:slot:used") {
			last = append(last, key)
		} else {
			do(from, "MIGRATE", "127.0.0.1", to.Port(), "", 0, 1000, "AUTH", canary, "KEYS", key)
		}
	}
	if len(last) != 4 {
		t.Fatalf("of %q these are left: %q", keys, last)
	}
	if r, err := store.Extend(ctx, ttl, grants...); err != nil || r[0].Outcome != driver.GrantOK ||
		r[1].Outcome != driver.GrantOK {
		t.Errorf("heartbeats: %+v, %v", r, err)
	}
	if _, err := store.Enumerate(ctx, "", 10); err == nil || errors.Is(err, driver.ErrFault) ||
		errors.Is(err, driver.ErrSetup) {
		t.Errorf("enumerate: %v, want an error that passes by itself", err)
	}
	if r, err := store.Release(ctx, grants...); err != nil || r[0].Outcome != driver.GrantOK ||
		r[1].Outcome != driver.GrantOK {
		t.Errorf("releases: %+v, %v", r, err)
	}
	for _, key := range last {
		do(from, "MIGRATE", "127.0.0.1", to.Port(), "", 0, 1000, "AUTH", canary, "KEYS", key)
	}
	do(to, "CLUSTER", "SETSLOT", slot, "NODE", target)
	do(from, "CLUSTER", "SETSLOT", slot, "NODE", target)
	if page, err := store.Enumerate(ctx, "", 10); err != nil || len(page.Leases) != 2 {
		t.Errorf("enumerate, when all has moved: %+v, %v", page, err)
	}
}
