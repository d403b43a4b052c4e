package redislock_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

var features = dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
	PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true, Enumeration: true}

// suiteTTL is the maximum TTL in the suite, long enough for a thousand calls on a busy machine. It
// is also how long the suite waits for a server that has just started.
const suiteTTL = 15 * time.Second

// namespaces returns the New of a Harness. Each test has its own prefix, and each host has its own
// store. In tests that take several locks in one step, the prefix has a hash tag. LoseData uses the
// client owner, which may list keys; the documented user of the store may not.
func namespaces(connect func(t testing.TB) redis.UniversalClient, owner redis.UniversalClient,
	opts redislock.Options) func(testing.TB) dlocktest.Namespace {
	return func(t testing.TB) dlocktest.Namespace {
		opts := opts
		opts.Prefix, opts.QuarantineTTL = shop+rand.Text()+":", suiteTTL
		if strings.Contains(t.Name(), "/rate/") { // the rate windows are longer than the servers have run
			opts.NoQuarantine = !opts.Embedded
		}
		if strings.Contains(t.Name(), "/rate/") || strings.Contains(t.Name(), "/shared/") ||
			strings.Contains(t.Name(), "/enumerate/") {
			opts.Prefix = shop + "{" + rand.Text() + "}:"
		}
		client := connect(t)
		return dlocktest.Namespace{
			Open:     func() driver.Store { return open(t, client, opts) },
			LoseData: func() { loseData(t, owner, opts.Prefix) },
		}
	}
}

// loseData deletes every key with the prefix, on every node.
func loseData(t testing.TB, client redis.UniversalClient, prefix string) {
	t.Helper()
	ctx := context.Background()
	clear := func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*"+prefix+"*").Result()
		for _, key := range keys {
			if err := node.Del(ctx, key).Err(); err != nil {
				return err
			}
		}
		return err
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, clear)
	case *redis.Client:
		err = clear(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// one returns a function that gives all tests of a suite the same client.
func one(t *testing.T, client redis.UniversalClient) func(testing.TB) redis.UniversalClient {
	t.Cleanup(func() { client.Close() })
	return func(testing.TB) redis.UniversalClient { return client }
}

func TestConformanceMiniredis(t *testing.T) {
	t.Parallel()
	dlocktest.Run(t, dlocktest.Harness{
		Features: features,
		New: func(t testing.TB) dlocktest.Namespace {
			// Each check has its own server, because aging the keys of all checks would take long.
			server := ageing(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { client.Close() })
			connect := func(testing.TB) redis.UniversalClient { return client }
			ns := namespaces(connect, client, redislock.Options{Embedded: true})(t)
			ahead := time.Duration(0)
			ns.StepClock = func(by time.Duration) time.Duration {
				ahead += by
				server.SetTime(time.Now().Add(ahead)) // the clock then stands still
				return ahead
			}
			return ns
		},
	})
}

// A proxy counts round trips on the wire. It slows every call by three milliseconds, so only the
// tests that count use it.
func TestConformanceSingle(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	server := redistest.New(t)
	f := features
	f.OneRoundTrip = true
	direct := namespaces(one(t, redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: server.Addr()})),
		server.Client(), redislock.Options{})
	dlocktest.Run(t, dlocktest.Harness{
		Features: f,
		New: func(t testing.TB) dlocktest.Namespace {
			if !strings.HasSuffix(t.Name(), "/one_round_trip_per_call") {
				return direct(t)
			}
			proxy := redistest.NewCountingProxyFor(t, server.Addr())
			client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: proxy.Addr()})
			t.Cleanup(func() { client.Close() })
			ns := namespaces(func(testing.TB) redis.UniversalClient { return client }, server.Client(),
				redislock.Options{})(t)
			ns.RoundTrips = proxy.RoundTrips
			return ns
		},
	})
}

// The keys have names in braces, but the server is not a Cluster. A client of a proxy in front of a
// Cluster would use such keys.
func TestConformanceSingleTagged(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	testkit.Long(t) // like TestConformanceSingle with the keys of a Cluster
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: server.Addr()})
	dlocktest.Run(t, dlocktest.Harness{Features: features,
		New: namespaces(one(t, client), server.Client(), redislock.Options{Keys: redislock.KeysTagged})})
}

func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	dlocktest.Run(t, dlocktest.Harness{Features: features,
		New: namespaces(one(t, client), cluster.Client(), redislock.Options{})})
}

func TestConformanceSentinel(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	testkit.Long(t) // like TestConformanceSingle with a master named by Sentinel
	s := redistest.NewSentinel(t)
	dlocktest.Run(t, dlocktest.Harness{Features: features, New: func(t testing.TB) dlocktest.Namespace {
		opts := redislock.Options{Prefix: shop + rand.Text() + ":", QuarantineTTL: suiteTTL,
			NoQuarantine: strings.Contains(t.Name(), "/rate/")}
		return dlocktest.Namespace{
			Open:     func() driver.Store { return openFailover(t, s, app, opts) },
			LoseData: func() { loseData(t, s.Master.Client(), opts.Prefix) },
		}
	}})
}
