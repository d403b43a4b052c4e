package registrycost_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/testkit"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // go-redis logs every connection that we break
	servertest.Main(m, func() error { return goleak.Find() })
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const ttl = time.Minute // of leases

// redisLocks returns a store of locks, of which the names can be granted.
func redisLocks(t testing.TB, addr string, names ...string) *redislock.Store {
	t.Helper()
	return redisLocksAt(t, addr, unique(t), names...)
}

func redisLocksAt(t testing.TB, addr, prefix string, names ...string) *redislock.Store {
	t.Helper()
	const short = time.Second // a name that is not known yet can be granted for as long as the server is up
	open := func(longest time.Duration) *redislock.Store {
		store := redislock.New(redisClient(t, addr), redislock.Options{Prefix: prefix, QuarantineTTL: longest})
		t.Cleanup(func() { store.Close() })
		return store
	}
	first := open(short)
	for _, name := range names {
		testkit.Eventually(t, 40*time.Second, "the end of the quarantine", func(ctx context.Context) error {
			g, err := first.TryAcquire(ctx, dlock.Request{Name: name, Slots: 1, Token: rand.Text(), TTL: short})
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

// pgxLocks returns a store of locks on Postgres, whose statements the counter sees.
func pgxLocks(t testing.TB, dsn string, trace *tracer) *sqllock.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	if trace != nil {
		config.ConnConfig.Tracer = trace
	}
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

// A tracer counts the statements that pgx sends.
type tracer struct{ statements atomic.Int64 }

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.statements.Add(1)
	return ctx
}
func (c *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// postgresTrips starts a proxy before a Postgres that counts the messages for whose answers a
// client waits: Sync and Query.
func postgresTrips(t testing.TB, dsn, target string) (through string, count func() int64) {
	t.Helper()
	var trips atomic.Int64
	proxy, err := servertest.NewProxyWith(func(conn net.Conn) func() ([]byte, error) {
		greeted := false
		return func() ([]byte, error) {
			head := make([]byte, 5) // type and length; the first message of a connection has no type
			if !greeted {
				head = head[:4]
			}
			if _, err := io.ReadFull(conn, head); err != nil {
				return nil, err
			}
			size := binary.BigEndian.Uint32(head[len(head)-4:])
			if size < 4 || size > 1<<26 {
				return nil, errors.New("not a message of Postgres")
			}
			body := make([]byte, size-4)
			if _, err := io.ReadFull(conn, body); err != nil {
				return nil, err
			}
			if greeted && (head[0] == 'S' || head[0] == 'Q') {
				trips.Add(1)
			}
			greeted = true
			return append(head, body...), nil
		}
	}, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return strings.Replace(dsn, target, proxy.Addr(), 1), trips.Load
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

// counted counts the calls of a registry.
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
