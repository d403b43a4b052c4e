package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// On a Cluster of one shard, both kinds of client work, each with its own form of the keys. The
// second kind gets an error and no lease.
//
// Fails when a *redis.ClusterClient does not check the plain form of the keys.
func TestI1BothKindsOfClientOnOneShard(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster := redistest.NewCluster(t, 1)
	single := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: cluster.Addrs()[0]})
	defer single.Close()
	many := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	defer many.Close()
	for i, clients := range [][2]redis.UniversalClient{{single, many}, {many, single}} {
		prefix := fmt.Sprintf("%s%d:", shop, i)
		first, second := open(t, clients[0], redislock.Options{Prefix: prefix}),
			open(t, clients[1], redislock.Options{Prefix: prefix})
		for _, slots := range []int{0, 1, 3} {
			name := fmt.Sprint("slots", slots)
			tick := &driver.Tick{At: time.Now(), Max: 1}
			g := untilGranted(t, first, driver.Request{Name: name, Slots: slots, Token: "first", TTL: quarantineTTL,
				Tick: tick})
			_, err := second.TryAcquire(t.Context(), driver.Request{Name: name, Slots: slots, Token: "second",
				TTL: quarantineTTL, Tick: tick})
			if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "Options.Keys") {
				t.Errorf("a %T, then a %T, %d slots: %v, want an error that says to set Options.Keys", clients[0],
					clients[1], slots, err)
			}
			if slots > 0 {
				err = second.Update(t.Context(), name, driver.Update{Limit: &driver.LimitOverride{Cause: ann,
					Slots: 1}})
				if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "Options.Keys") {
					t.Errorf("an update: %v, want an error that says to set Options.Keys", err)
				}
			}
			if r, err := first.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Error(r, err)
			}
		}
	}
}

// Some clients lead to a Cluster without knowing its nodes: a client of a proxy, or a user's client
// that wraps a *redis.ClusterClient. With the keys of a name in braces, they can use all names.
//
// Fails when a key in the other form, which is on another node, must be present.
func TestTaggedKeysThroughAProxy(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster := redistest.NewCluster(t, 3)
	direct := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs(),
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	defer direct.Close()
	proxied := redis.NewClient(&redis.Options{Addr: proxy(t, direct)})
	defer proxied.Close()
	wrapped := struct{ redis.UniversalClient }{direct}
	const steady = 5 * time.Second // on a busy machine, no lease ends before its release
	for what, store := range map[string]*redislock.Store{
		"proxy": open(t, proxied, redislock.Options{Prefix: shop, Keys: redislock.KeysTagged, QuarantineTTL: steady}),
		"wrapped": open(t, wrapped, redislock.Options{Prefix: shop, Keys: redislock.KeysTagged, QuarantineTTL: steady,
			SharedPool: true}),
	} {
		for i := range 12 {
			for _, slots := range []int{0, 2} {
				name := fmt.Sprint(what, i, "-", slots)
				g := untilGranted(t, store, driver.Request{Name: name, Slots: slots, Token: "t", TTL: steady,
					Tick: &driver.Tick{At: time.Now(), Max: 1}})
				if r, err := store.Extend(t.Context(), steady, g); err != nil || r[0].Outcome != driver.GrantOK {
					t.Error(name, r, err)
				}
				if slots > 0 {
					if err := store.Update(t.Context(), name, driver.Update{Limit: &driver.LimitOverride{Cause: ann,
						Slots: 1}}); err != nil {
						t.Error(name, err)
					}
					if err := store.Update(t.Context(), name+"new",
						driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 1}}); err != nil {
						t.Error(name, err)
					}
				}
				if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
					t.Error(name, r, err)
				}
			}
		}
	}
	if err := open(t, wrapped, redislock.Options{SharedPool: true}).Check(); err != nil {
		t.Error(err)
	}
	_, err := open(t, wrapped, redislock.Options{Prefix: shop, SharedPool: true}).TryAcquire(t.Context(),
		driver.Request{Name: "plain", Slots: 3, Token: "t", TTL: quarantineTTL})
	if !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "Options.Keys: KeysTagged") {
		t.Errorf("the plain form on a Cluster: %v, want an error that says what to set", err)
	}
}

// proxy starts a server that passes every call to the right node of a Cluster. It returns the
// server's address.
func proxy(t *testing.T, cluster *redis.ClusterClient) string {
	t.Helper()
	p, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	var reply func(c *server.Peer, v any)
	reply = func(c *server.Peer, v any) {
		switch v := v.(type) {
		case nil:
			c.WriteNull()
		case string:
			c.WriteBulk(v)
		case int64:
			c.WriteInt(int(v))
		case []any:
			c.WriteLen(len(v))
			for _, part := range v {
				reply(c, part)
			}
		default:
			c.WriteError(fmt.Sprintf("ERR the proxy cannot pass on a %T", v))
		}
	}
	pass := func(c *server.Peer, cmd string, args []string) {
		call := []any{cmd}
		for _, arg := range args {
			call = append(call, arg)
		}
		v, err := cluster.Do(context.Background(), call...).Result()
		if err != nil {
			c.WriteError(err.Error())
			return
		}
		reply(c, v)
	}
	for _, cmd := range []string{"EVALSHA", "EVAL"} {
		if err := p.Register(cmd, pass); err != nil {
			t.Fatal(err)
		}
	}
	return p.Addr().String()
}

// An error of one name does not affect other names, whatever the name contains, even in the same
// run of a script.
//
// Fails when READONLY or NOPERM is searched for anywhere in a script's error.
func TestNamesThatSoundLikeErrors(t *testing.T) {
	t.Parallel()
	prefix := unique("sounds")
	client, store := shared(t, prefix)
	for _, name := range []string{"READONLY it is", "a READONLY b", "-READONLY x", "NOPERM x", "unknown command 'x'",
		"SETUP x", "TICKSLOT SETUP x"} {
		for _, slots := range []int{0, 2} {
			key := prefix + name + ":slot:0"
			if slots == 0 {
				key = prefix + name
			}
			client.LPush(t.Context(), key, "not a lease")
			_, err := store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: slots, Token: "t",
				TTL: quarantineTTL})
			if !errors.Is(err, driver.ErrFault) || errors.Is(err, driver.ErrSetup) ||
				redis.HasErrorPrefix(err, "READONLY") {
				t.Errorf("%q with %d slots: %v, want a fault of that name", name, slots, err)
			}
			results, err := store.Release(t.Context(), driver.Grant{Name: name, Slots: slots, Token: "t"})
			if err := unknown(results, err); !errors.Is(err, driver.ErrFault) || errors.Is(err, driver.ErrSetup) {
				t.Errorf("release of %q with %d slots: %v, want a fault of that name", name, slots, err)
			}
		}
	}
}

// Names that look like errors do not affect other names in the same run of the script.
func TestNamesThatSoundLikeErrorsHarmNoOthers(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, false)
	const broken = "READONLY x"
	redistest.Shared(t).Client().LPush(t.Context(), c.direct.Key(broken), "not a lease")
	for i, name := range []string{"before", broken, "behind"} {
		var check func(error)
		if name == broken {
			check = func(err error) {
				if !errors.Is(err, driver.ErrFault) {
					t.Errorf("%s: %v, want a fault of that name", name, err)
				}
			}
		}
		c.acquire(t.Context(), name, check)
		c.waiting(i + 1)
	}
	close(c.gate.opened)
	c.calls.Wait()
	if got := fmt.Sprint(c.gate.pipelines); got != "[[3]]" {
		t.Errorf("runs for %v names, want one for 3", got)
	}
}

// A repeated attempt finds its grant even if its slot is beyond a limit that was set meanwhile.
//
// Fails when a slot beyond the limit counts as an invalid answer.
func TestAskedAgainAfterTheLimitWasLowered(t *testing.T) {
	t.Parallel()
	_, store := shared(t, unique("lowered"))
	limit := func(slots int) {
		t.Helper()
		if err := store.Update(t.Context(), "a", driver.Update{Limit: &driver.LimitOverride{Cause: ann,
			Slots: slots}}); err != nil {
			t.Fatal(err)
		}
	}
	limit(3)
	grants := map[string]driver.Grant{}
	for range 2 {
		for _, token := range []string{"x", "y", "z"} {
			g, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: token,
				TTL: quarantineTTL})
			if before, again := grants[token]; err != nil || again &&
				(before.Slot != g.Slot || before.Fence != g.Fence) {
				t.Errorf("%s: %+v, %v; before it was %+v", token, g, err, before)
			}
			grants[token] = g
		}
		limit(1)
	}
}
