package redislock_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/timertest"
)

// timersTTL is also the quarantine of a server that has just started.
const timersTTL = 3 * time.Second

// Timers keep I1 to I12 on a Cluster, too, as the user of docs/redis.md.
func TestTimersCluster(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	testkit.Long(t) // make test runs these tests on one Redis and on Postgres
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	t.Cleanup(func() { client.Close() })
	timertest.Run(t, timertest.Harness{
		TTL: timersTTL,
		New: func(t testing.TB) timertest.Store {
			opts := redislock.Options{Prefix: shop + rand.Text() + ":", QuarantineTTL: timersTTL}
			if strings.Contains(t.Name(), "_share") { // the keys of a limit and its timers must be on one node
				opts.Prefix = shop + "{" + rand.Text() + "}:"
			}
			return timertest.Store{Open: func(t testing.TB) driver.Store { return open(t, client, opts) }}
		},
	})
}

// Timers on several hosts keep I1 to I12 on a real Redis. For the outages of I7, a proxy in front
// of the namespace drops everything.
func TestTimers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	direct := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: server.Addr()})
	t.Cleanup(func() { direct.Close() })
	timertest.Run(t, timertest.Harness{
		TTL: timersTTL,
		New: func(t testing.TB) timertest.Store {
			opts := redislock.Options{Prefix: shop + rand.Text() + ":", QuarantineTTL: timersTTL}
			if !strings.Contains(t.Name(), "/I7_") {
				return timertest.Store{Open: func(t testing.TB) driver.Store { return open(t, direct, opts) }}
			}
			proxy := servertest.NewProxyFor(t, server.Addr())
			client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: proxy.Addr()})
			t.Cleanup(func() { client.Close() })
			return timertest.Store{
				Open: func(t testing.TB) driver.Store { return open(t, client, opts) },
				Down: func() { proxy.BlackHole(true) },
				Up:   func() { proxy.BlackHole(false) },
			}
		},
		Misconfigured: func(t testing.TB) (driver.Store, []string) {
			return open(t, direct, redislock.Options{Prefix: "a\nb", QuarantineTTL: timersTTL, PoolSize: -1}),
				[]string{`Prefix "a\nb"`, "PoolSize -1: must be positive"}
		},
	})
}
