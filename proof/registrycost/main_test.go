package registrycost_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // go-redis logs every connection that the tests break
	servertest.Main(m, func() error { return goleak.Find() })
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const ttl = time.Minute // for leases

// redisLocks returns a lock store that can grant these names.
func redisLocks(t testing.TB, addr string, names ...string) *redislock.Store {
	t.Helper()
	return redisLocksAt(t, addr, unique(t), names...)
}

func redisLocksAt(t testing.TB, addr, prefix string, names ...string) *redislock.Store {
	t.Helper()
	const short = time.Second // a new name can be granted for as long as the server has been up
	open := func(longest time.Duration) *redislock.Store {
		store := redislock.New(redisClient(t, addr), redislock.Options{Prefix: prefix, QuarantineTTL: longest})
		t.Cleanup(func() { store.Close() })
		return store
	}
	first := open(short)
	for _, name := range names {
		testkit.Eventually(t, 40*time.Second, "the end of the quarantine", func(ctx context.Context) error {
			g, err := first.TryAcquire(ctx, driver.Request{Name: name, Slots: 1, Token: rand.Text(), TTL: short})
			if err == nil {
				_, err = first.Release(ctx, g)
			}
			return err
		})
	}
	return open(ttl)
}

func redisClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, Password: servertest.Canary})
	t.Cleanup(func() { client.Close() })
	return client
}

var count atomic.Int64

func unique(t testing.TB) string { return fmt.Sprint(t.Name(), count.Add(1), ":") }

// pgxLocks returns a lock store on Postgres.
func pgxLocks(t testing.TB, dsn string) *sqllock.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgxlock.New(pool, sqllock.Options{})
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return store
}

// run runs a registry until the test ends.
func run(t testing.TB, r *cluster.Registry) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
}

// A counted counts the calls of a registry.
type counted struct {
	cluster.Store
	calls, writes atomic.Int64
}

func (c *counted) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	c.calls.Add(1)
	w, err := c.Store.Write(ctx, b)
	c.writes.Add(1)
	return w, err
}

func (c *counted) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	c.calls.Add(1)
	return c.Store.Read(ctx, q)
}

func (c *counted) Runs(ctx context.Context, timer string) ([]cluster.Run, error) {
	c.calls.Add(1)
	return c.Store.Runs(ctx, timer)
}

func (c *counted) Sweep(ctx context.Context, r cluster.Retention, limit int) (int, error) {
	c.calls.Add(1)
	return c.Store.Sweep(ctx, r, limit)
}
