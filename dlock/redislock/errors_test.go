package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// If a server is out of memory, acquires return an error, not a refusal. Held leases can be
// released. When memory is available again, everything works.
//
// Fails when the error counts as "not acquired".
func TestServerOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	ctx := t.Context()
	short, err := store.TryAcquire(ctx, driver.Request{Name: "short", Slots: 1, Token: "a", TTL: 3 * quarantineTTL / 4})
	if err != nil {
		t.Fatal(err)
	}
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: "a", TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes string) {
		t.Helper()
		if err := server.Client().ConfigSet(ctx, "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	// Otherwise other hosts would shorten a lease that lasts longer than its value says.
	if r, err := store.Extend(ctx, quarantineTTL, short); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a heartbeat with a longer TTL, which cannot be written: %v, %v", r, err)
	}
	_, err = store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: "b", TTL: quarantineTTL})
	if err == nil || errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("acquire: %v, want that the server has no memory", err)
	}
	server.Client().HDel(ctx, server.Client().Keys(ctx, "*a:slot:state").Val()[0], "kept") // as if it were due
	if r, err := store.Extend(ctx, quarantineTTL, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("a heartbeat: %v, %v", r, err)
	}
	if r, err := store.Extend(ctx, quarantineTTL/2, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("a heartbeat with another TTL, which cannot be written: %v, %v", r, err)
	}
	if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %v, %v", r, err)
	}
	limit("0")
	for _, token := range []string{"c", "d"} { // both slots are free
		if _, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: token,
			TTL: quarantineTTL}); err != nil {
			t.Errorf("acquire, when there is memory again: %v", err)
		}
	}
}

// If a server has forgotten its scripts, the same call sends them again.
//
// Fails when a script is called only by its digest.
func TestScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	ctx := t.Context()
	forget := func() {
		t.Helper()
		if err := server.Client().ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: "a", TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	forget()
	if r, err := store.Extend(ctx, quarantineTTL, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("extend: %v, %v", r, err)
	}
	forget()
	if list, err := store.List(ctx, "a", 2); err != nil || len(list) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	forget()
	if page, err := store.Enumerate(ctx, "", 10); err != nil || len(page.Leases) != 2 { // awake was released
		t.Errorf("enumerate: %v, %v", page, err)
	}
	ann := driver.Cause{By: "ann"}
	forget()
	if err := store.Update(ctx, "a", driver.Update{Trigger: &ann}); err != nil {
		t.Errorf("update: %v", err)
	}
	forget()
	if list, err := store.Inspect(ctx, "a", "b"); err != nil || list[0].Trigger == nil {
		t.Errorf("inspect: %v, %v", list, err)
	}
	forget()
	if err := store.Revoke(ctx, "a", g.Slot, g.Fence, ann); err != nil {
		t.Errorf("revoke: %v", err)
	}
	forget()
	if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %v, %v", r, err)
	}
}

// If a name's keys are moved to another node of the Cluster, its leases stay, and calls follow.
// During the move, calls may fail, but no lease is lost.
//
// Fails when redirections are not followed.
func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	defer client.Close()
	const ttl = 5 * time.Second // on a busy machine, moving the slot takes more than one beat
	store := open(t, client, redislock.Options{Prefix: shop, QuarantineTTL: ttl})
	awake(t, store)
	ctx := t.Context()
	const name = "timer:moves"
	var granted driver.Grant
	testkit.Eventually(t, 20*time.Second, "this node grants, too", func() (err error) {
		granted, err = store.TryAcquire(ctx, driver.Request{Name: name, Slots: 2, Token: "a", TTL: ttl})
		return err
	})
	do := func(node *redistest.Server, args ...any) any {
		t.Helper()
		v, err := node.Client().Do(ctx, args...).Result()
		if err != nil {
			t.Fatal(args, err)
		}
		return v
	}
	var from *redistest.Server
	var keys []string
	for _, node := range cluster.Nodes {
		if found := node.Client().Keys(ctx, "*"+name+"*").Val(); len(found) > 0 {
			from, keys = node, found
		}
	}
	if from == nil {
		t.Fatal("no node has the keys")
	}
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	number := do(from, "CLUSTER", "KEYSLOT", keys[0])
	source, target := do(from, "CLUSTER", "MYID"), do(to, "CLUSTER", "MYID")
	do(to, "CLUSTER", "SETSLOT", number, "IMPORTING", source)
	do(from, "CLUSTER", "SETSLOT", number, "MIGRATING", target)
	extend := func(when string) {
		t.Helper()
		if r, err := store.Extend(ctx, 5*ttl/6, granted); err != nil || r[0].Outcome != driver.GrantOK {
			t.Errorf("extend, %s: %v, %v", when, r, err)
		}
	}
	extend("about to move")
	move := []any{"MIGRATE", "127.0.0.1", fmt.Sprint(to.Port()), "", 0, 5000, "AUTH", canary, "KEYS"}
	for _, key := range keys {
		move = append(move, key)
	}
	do(from, move...)
	// During the move, the driver may not find the keys. The outcome is then unknown, not lost, and
	// the session asks again.
	if r, err := store.Extend(ctx, 5*ttl/6, granted); err == nil && r[0].Outcome != driver.GrantOK ||
		err != nil && strings.Contains(err.Error(), "pass a *redis.ClusterClient") {
		t.Errorf("extend, moved, and only the old node says so: %v, %v", r, err)
	}
	for _, node := range cluster.Nodes {
		do(node, "CLUSTER", "SETSLOT", number, "NODE", target)
	}
	extend("moved")
	var no *driver.NotAcquiredError
	if _, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 1, Token: "b",
		TTL: ttl}); err != nil && !errors.As(err, &no) {
		t.Errorf("acquire, moved: %v", err)
	}
	if r, err := store.Release(context.WithoutCancel(ctx), granted); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %v, %v", r, err)
	}
}
