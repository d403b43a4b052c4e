package redislock_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/redistest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// While a slot of the Cluster moves to another node, key by key, a name in it is granted to nobody
// else, wherever its keys are; its holder keeps its lease, and renews it at the new node.
//
// Fails when a script treats a key that has not been moved yet as missing.
func TestI1ReshardingUnderALease(t *testing.T) {
	t.Parallel()
	long(t)
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
		} else if errors.Is(err, dlock.ErrFault) || errors.Is(err, dlock.ErrSetup) {
			t.Errorf("%s, %s first, %s: %v, which passes by itself", kind, first, when, err)
		}
	}
	migrating.Lock() // one slot at a time: a node that sends a key waits, and takes none meanwhile
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
			// Time for a heartbeat, which is then told to try again. The test depends on none.
			time.Sleep(quarantineTTL / 4)
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	do(from, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	unlock()
	halfway := time.Since(began)
	// The pause between two looks spares the machine; nothing depends on it.
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
	// the new node waits until leases that it does not know have ended
	if err := testkit.Poll(3*quarantineTTL, "a grant", func() error {
		_, err := acquire(other)
		return err
	}); err != nil {
		fatal("%s, %s first, after its release: %v", kind, first, err)
	}
}
