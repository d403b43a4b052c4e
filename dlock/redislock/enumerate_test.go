package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// listed returns the leases on all pages by name and slot, such as "a/0". A mutex is "a".
func listed(t *testing.T, store *redislock.Store) map[string]driver.LeaseInfo {
	t.Helper()
	found := map[string]driver.LeaseInfo{}
	for after := ""; ; {
		page, err := store.Enumerate(t.Context(), after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Leases {
			if l.Mutex {
				found[l.Name] = l
			} else {
				found[fmt.Sprintf("%s/%d", l.Name, l.Slot)] = l
			}
		}
		if after = page.Next; after == "" {
			return found
		}
	}
}

func acquire(t *testing.T, store *redislock.Store, name string, slots int) driver.Grant {
	t.Helper()
	g, err := store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: slots, Token: "token-" + name,
		TTL: quarantineTTL, Holder: driver.Holder{Host: "web-1", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func release(t *testing.T, store *redislock.Store, g driver.Grant) {
	t.Helper()
	if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Fatal(r, err)
	}
}

// The server counts the commands in the scripts. In the common case, Enumerate costs an acquire and
// a heartbeat no command, and a release one.
//
// Fails when every grant adds its name, when a grant removes the release before it, or when a
// heartbeat rewrites a value.
func TestCommandsOfACall(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: "shop:"})
	awake(t, store)
	for _, c := range []struct {
		slots                    int
		acquire, extend, release string
	}{
		{0, "hmget=1 hset=1 info=1 set=1 time=1", "get=1 hmget=1 pexpire=1 time=1",
			"del=1 get=1 hset=1 set=1 time=1"},
		{2, "hmget=1 hset=1 info=1 pexpire=1 set=1 time=1 zadd=2 zrangebyscore=1 zremrangebyscore=1 zscore=1",
			"get=1 hmget=1 pexpire=1 time=1 zadd=1", "del=1 get=1 hget=1 hset=1 set=1 time=1 zadd=1 zrem=1"},
	} {
		count := func(what, want string, do func()) {
			t.Helper()
			before := commands(t, server)
			do()
			after := commands(t, server)
			var list []string
			for cmd, n := range after {
				n -= before[cmd]
				if cmd == "info" {
					n-- // the test's own command
				}
				if n > 0 && cmd != "evalsha" {
					list = append(list, fmt.Sprintf("%s=%d", cmd, n))
				}
			}
			slices.Sort(list)
			if got := strings.Join(list, " "); got != want {
				t.Errorf("%s of %d slots: %s; want %s", what, c.slots, got, want)
			}
		}
		var g driver.Grant
		extend := func() {
			t.Helper()
			if r, err := store.Extend(t.Context(), quarantineTTL, g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Error(r, err)
			}
		}
		for range 2 { // the first grant of a name adds it, and the first use of a script loads it
			g = acquire(t, store, "a", c.slots)
			extend()
			release(t, store, g)
		}
		count("acquire", c.acquire, func() { g = acquire(t, store, "a", c.slots) })
		count("extend", c.extend, extend)
		count("release", c.release, func() { release(t, store, g) })
	}
}

// commands returns how often the server ran each command.
func commands(t *testing.T, s *redistest.Server) map[string]int {
	t.Helper()
	info, err := s.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		n := 0
		if _, err := fmt.Sscanf(rest, "%d,", &n); err == nil && !strings.Contains(name, "|") && name != "hello" {
			counts[name] = n
		}
	}
	return counts
}

// Each time that a name is added to the sets, a few names that are no longer used are removed. The
// sets expire with the last name. A name in use is added again by its grants and heartbeats.
//
// Fails when extend.lua adds no name, or when nothing trims the sets.
func TestNamesInUse(t *testing.T) {
	t.Parallel()
	prefix := unique("inuse")
	client, store := shared(t, prefix)
	ctx := t.Context()
	names, used := prefix+":slot:names", prefix+":slot:used"
	held := acquire(t, store, "held", 3)
	patient := open(t, client, redislock.Options{Prefix: prefix, QuarantineTTL: time.Minute})
	extend := func() {
		t.Helper()
		if r, err := patient.Extend(ctx, time.Minute, held); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
	}
	extend()
	long := 2 * time.Hour // in the past
	for i := range 25 {
		state := fmt.Sprintf("%sold-%d:slot:mutex", prefix, i)
		client.ZAdd(ctx, names, redis.Z{Member: state})
		client.ZAdd(ctx, used, redis.Z{Member: state, Score: float64(time.Now().Add(-long).UnixMilli())})
	}
	for i := range 3 {
		acquire(t, store, fmt.Sprint("new-", i), i)
	}
	of := func(keys ...string) []string {
		for i := range keys {
			keys[i] = prefix + keys[i]
		}
		return keys
	}
	want := of("awake:slot:mutex", "held:slot:state", "new-0:slot:mutex", "new-1:slot:state", "new-2:slot:state")
	for key, got := range map[string][]string{"names": client.ZRange(ctx, names, 0, -1).Val(),
		"used": client.ZRange(ctx, used, 0, -1).Val()} {
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", key, got, want)
		}
		if left := client.PTTL(ctx, prefix+":slot:"+key).Val(); left <= 0 || left > time.Hour {
			t.Errorf("%s expires in %v, want an hour", key, left)
		}
	}
	client.Del(ctx, names, used)
	if found := listed(t, store); len(found) > 0 {
		t.Errorf("without the set: %+v", found)
	}
	if extend(); client.Exists(ctx, names).Val() != 0 {
		t.Error("a heartbeat noted its name, which was noted a moment ago")
	}
	client.HSet(ctx, prefix+"held:slot:state", "kept", time.Now().Add(-time.Hour).UnixMilli())
	extend()
	if found := slices.Collect(maps.Keys(listed(t, store))); len(found) != 1 || found[0] != "held/0" {
		t.Errorf("after a heartbeat that was due to note its name: %q", found)
	}
}

// A release is kept for a minute, without the token, which is a secret.
//
// Fails when the release has no expiry.
func TestReleasesAreKeptForAMinute(t *testing.T) {
	t.Parallel()
	prefix := unique("released")
	client, store := shared(t, prefix)
	mutex, slot := acquire(t, store, "m", 0), acquire(t, store, "s", 2)
	if err := store.Revoke(t.Context(), "s", slot.Slot, slot.Fence, ann); err != nil {
		t.Fatal(err)
	}
	release(t, store, mutex)
	release(t, store, slot)
	for _, key := range []string{"m:slot:released", "s:slot:released:0"} {
		value := client.Get(t.Context(), prefix+key).Val()
		if strings.Contains(value, "token") || !strings.Contains(value, "web-1") {
			t.Errorf("%s is %s", key, value)
		}
		if left := client.PTTL(t.Context(), prefix+key).Val(); left <= 0 || left > driver.ReleasedFor {
			t.Errorf("%s expires in %v", key, left)
		}
	}
	found := listed(t, store)
	for what, g := range map[string]driver.Grant{"m": mutex, "s/0": slot} {
		if l := found[what]; l.Fence != g.Fence || l.Holder.Host != "web-1" || l.ReleasedAgo <= 0 || l.ExpiresIn != 0 {
			t.Errorf("%s: %+v", what, l)
		}
	}
}

// If other programs write to the keys, Enumerate returns the leases that it can parse. Grants do
// not depend on the sets.
//
// Fails when a script uses call instead of pcall for a ZADD to the sets.
func TestEnumerateAmongNonsense(t *testing.T) {
	t.Parallel()
	prefix := unique("nonsense")
	client, store := shared(t, prefix)
	ctx := t.Context()
	names := prefix + ":slot:names"
	for _, member := range []string{"", "x", prefix, prefix + ":slot:state", "other:a:slot:state",
		prefix + "list:slot:mutex", prefix + "text:slot:state", prefix + "held:slot:state",
		prefix + "bad\nname:slot:mutex"} {
		client.ZAdd(ctx, names, redis.Z{Member: member})
	}
	client.LPush(ctx, prefix+"list", "no lease")
	client.Set(ctx, prefix+"bad\nname", "{}", time.Minute)
	client.Set(ctx, prefix+"text:slot:index", "no index", time.Minute)
	client.ZAdd(ctx, prefix+"held:slot:index", redis.Z{Member: "x"}, redis.Z{Member: "7"}, redis.Z{Member: "10000"})
	for _, slot := range []string{"x", "7", "10000"} {
		client.Set(ctx, prefix+"held:slot:"+slot, "no JSON", time.Minute)
	}
	good := acquire(t, store, "good", 0)
	found := listed(t, store)
	delete(found, "awake")
	if l := found["held/7"]; l.Holder != (driver.Holder{}) || l.ExpiresIn <= 0 || l.RenewedAgo != 0 || l.HeldFor != 0 {
		t.Errorf("a lease without a holder: %+v", l)
	}
	if len(found) != 2 || found["good"].Fence != good.Fence {
		t.Errorf("%+v", found)
	}

	client.Del(ctx, names, prefix+":slot:used")
	client.Set(ctx, names, "no set", time.Minute)
	client.Set(ctx, prefix+":slot:used", "no set", time.Minute)
	client.Set(ctx, prefix+"other:slot:released:0", "taken", time.Minute)
	client.LPush(ctx, prefix+"more:slot:released", "taken")
	release(t, store, acquire(t, store, "other", 2))
	release(t, store, acquire(t, store, "more", 0))
	if _, err := store.Enumerate(ctx, "", 1); !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(),
		names) {
		t.Errorf("%v, want a fault that names the key", err)
	}
	for _, limit := range []int{-1, 0, driver.MaxPage + 1} {
		if _, err := store.Enumerate(ctx, "", limit); err == nil || errors.Is(err, driver.ErrFault) {
			t.Errorf("a page of %d: %v, want an error", limit, err)
		}
	}
}

// A page examines a limited number of keys, however many leases are requested. So it does not block
// the server for long.
//
// Fails when only leases are counted and many names have none.
func TestAPageIsBounded(t *testing.T) {
	t.Parallel()
	prefix := unique("bounded")
	client, store := shared(t, prefix)
	pipe := client.Pipeline()
	for i := range 10_000 {
		pipe.ZAdd(t.Context(), prefix+":slot:names", redis.Z{Member: fmt.Sprintf("%sidle-%05d:slot:mutex", prefix, i)})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, store, "z", 2)
	pages, leases := 0, 0
	for after := ""; ; pages++ {
		page, err := store.Enumerate(t.Context(), after, driver.MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		leases += len(page.Leases)
		if after = page.Next; after == "" {
			break
		}
	}
	if pages != 5 || leases != 2 { // 2,000 names each, and the rest; awake was released
		t.Errorf("%d leases behind %d pages", leases, pages)
	}
}

// On a Cluster, all names are listed if the Prefix keeps them on one node. Otherwise an error says
// how to do this, and nothing is written that Enumerate could not read.
//
// Fails when keys without a hash tag share a set on one node.
func TestEnumerateOnACluster(t *testing.T) {
	t.Parallel()
	cluster, scattered := clusterOf(t, redislock.Options{})
	if _, err := scattered.Enumerate(t.Context(), "", 1); !errors.Is(err, errors.ErrUnsupported) ||
		!strings.Contains(err.Error(), "Options.Prefix") {
		t.Errorf("%v, want an error that says to set a prefix", err)
	}
	for _, node := range cluster.Nodes {
		for _, pattern := range []string{"*:slot:names", "*:slot:used", "*:slot:released*"} {
			if keys := node.Client().Keys(t.Context(), pattern).Val(); len(keys) > 0 {
				t.Errorf("keys that nobody reads: %q", keys)
			}
		}
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	defer client.Close()
	for _, prefix := range []string{"{shop}:", "shop:{mail}:"} {
		if prefix[0] == '{' { // docs/redis.md says to permit these keys
			if err := permit(cluster, "~{{shop}:*"); err != nil {
				t.Fatal(err)
			}
		}
		store := open(t, client, redislock.Options{Prefix: prefix})
		testkit.Eventually(t, 10*time.Second, "the node grants", func() error {
			_, err := store.TryAcquire(t.Context(), driver.Request{Name: "m", Token: "t", TTL: quarantineTTL})
			return err
		})
		release(t, store, acquire(t, store, "s", 2))
		if found := listed(t, store); found["s/0"].ReleasedAgo <= 0 || found["m"].ExpiresIn <= 0 || len(found) != 2 {
			t.Errorf("prefix %s: %+v", prefix, found)
		}
	}
}

// permit lets the application's user use additional keys.
func permit(cluster *redistest.Cluster, keys string) error {
	for _, node := range cluster.Nodes {
		if err := node.Client().Do(context.Background(), "ACL", "SETUSER", app, keys).Err(); err != nil {
			return err
		}
	}
	return nil
}
