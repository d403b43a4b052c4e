package registrycost_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A lock makes the same round trips, and on SQL the same statements, with a registry as without:
// when it is acquired, refused, extended, and released. A registry whose Run was not called sends
// nothing.
//
// Fails when the decorator calls a store, or the registry uses a connection of the locks.
func TestARegistryCostsLocksNoRoundTrip(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		server := redistest.Shared(t)
		lockWire := redistest.NewCountingProxyFor(t, server.Addr())
		wire := redistest.NewCountingProxyFor(t, server.Addr())
		store := redisregistry.New(redisClient(t, wire.Addr()), redisregistry.Options{Prefix: unique(t)})
		t.Cleanup(func() { store.Close() })
		lockTrips(t, redisLocks(t, lockWire.Addr(), lockName), store, wire.RoundTrips, lockWire.RoundTrips)
	})
	t.Run("Postgres", func(t *testing.T) {
		server := sqltest.SharedPostgres(t)
		database := server.NewDatabase(t)
		lockWire, wire := server.NewCountingProxy(t), server.NewCountingProxy(t)
		locks := pgxLocks(t, lockWire.DSN("", "", database))
		store := sqlregistry.Postgres(openDB(t, "pgx", server.DSN("", "", database)), sqlregistry.Options{})
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		store = sqlregistry.Postgres(openDB(t, "pgx", wire.DSN("", "", database)), sqlregistry.Options{})
		lockTrips(t, locks, store, wire.RoundTrips, lockWire.RoundTrips, lockWire.Statements)
	})
}

const lockName = "timer:orders"

// lockTrips compares the traffic of locks with and without a registry. wire returns the traffic of
// the registry.
func lockTrips(t *testing.T, locks dlock.DistributedLock, store cluster.Store, wire func() int64,
	sent ...func() int64) {
	t.Helper()
	registry, err := cluster.New(cluster.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	decorated := registry.Decorate(locks)
	request := func() driver.Request {
		return driver.Request{Name: lockName, Slots: 1, Token: rand.Text(), TTL: ttl}
	}
	cycle := func(locks dlock.DistributedLock) (costs [][]int64) {
		t.Helper()
		var g driver.Grant
		for _, call := range []func() error{
			func() (err error) {
				g, err = locks.TryAcquire(t.Context(), request())
				return err
			},
			func() error {
				if _, err := locks.TryAcquire(t.Context(), request()); err == nil {
					return errors.New("granted twice")
				}
				return nil
			},
			func() error { _, err := locks.Extend(t.Context(), ttl, g); return err },
			func() error { _, err := locks.Release(t.Context(), g); return err },
		} {
			before := make([]int64, len(sent))
			for i, n := range sent {
				before[i] = n()
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			cost := make([]int64, len(sent))
			for i, n := range sent {
				cost[i] = n() - before[i]
			}
			costs = append(costs, cost)
		}
		return costs
	}
	cycle(locks) // opens connections, and loads scripts
	want := fmt.Sprint(cycle(locks))
	if want != "[[1] [1] [1] [1]]" && want != "[[1 1] [1 1] [1 1] [1 1]]" {
		t.Errorf("without a registry: %s", want)
	}
	if got := fmt.Sprint(cycle(decorated)); got != want {
		t.Errorf("decorated: %s, want %s", got, want)
	}
	if n := wire(); n != 0 {
		t.Errorf("a registry that does not run has sent %d times", n)
	}
	run(t, registry)
	testkit.Eventually(t, 20*time.Second, "a heartbeat", func() bool { return wire() > 0 })
	for range 20 {
		if got := fmt.Sprint(cycle(decorated)); got != want {
			t.Errorf("with a registry: %s, want %s", got, want)
		}
	}
	testkit.Eventually(t, 20*time.Second, "the lease in the registry", func(ctx context.Context) error {
		rows, err := store.Read(ctx, cluster.Query{})
		if err == nil && len(rows.Leases) != 1 {
			err = fmt.Errorf("%d leases", len(rows.Leases))
		}
		return err
	})
}

func openDB(t testing.TB, driverName, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { db.Close() })
	return db
}

// A snapshot of 200 hosts with 1,000 timers each and four pages of leases takes five calls for a
// hundred concurrent viewers, and none for the next hundred.
//
// Fails when viewers do not share a read, or the store is read host by host.
func TestSnapshotOfALargeFleetTakesFiveCalls(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		wire := redistest.NewCountingProxyFor(t, redistest.Shared(t).Addr())
		store := redisregistry.New(redisClient(t, wire.Addr()), redisregistry.Options{Prefix: unique(t)})
		t.Cleanup(func() { store.Close() })
		viewers(t, store, wire.RoundTrips)
	})
	t.Run("Postgres", func(t *testing.T) {
		server := sqltest.SharedPostgres(t)
		wire := server.NewCountingProxy(t)
		store := sqlregistry.Postgres(openDB(t, "pgx", wire.DSN("", "", server.NewDatabase(t))), sqlregistry.Options{})
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		viewers(t, store, wire.RoundTrips)
	})
	t.Run("SQLite", func(t *testing.T) {
		store := sqlregistry.SQLite(openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "registry.db")),
			sqlregistry.Options{})
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		viewers(t, store, nil)
	})
}

// viewers lets a hundred of them read at once. wire counts round trips, or is nil.
func viewers(t *testing.T, store cluster.Store, wire func() int64) {
	t.Helper()
	const hosts, timers, at = 200, 1000, 100
	var detail cluster.HostDetail
	for i := range timers {
		detail.Timers = append(detail.Timers, cluster.TimerDetail{Name: fmt.Sprint("orders-", i), MaxConcurrency: 3})
	}
	text, err := json.Marshal(detail)
	if err != nil {
		t.Fatal(err)
	}
	for i := range hosts {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := store.Write(ctx, cluster.Batch{Host: &cluster.Heartbeat{Detail: text, TTL: 5 * time.Minute,
			Holder: dlock.Holder{Host: fmt.Sprint("web-", i), PID: i, ID: "x"}}})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	calls := &counted{Store: store}
	locks := &manyLeases{}
	registry, err := cluster.New(cluster.Config{Store: calls, Locks: locks, TTL: 5 * time.Minute,
		StoreTimeout: time.Minute, SnapshotAge: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		var all sync.WaitGroup
		for range at {
			all.Go(func() {
				s, err := registry.Snapshot(t.Context())
				if err != nil || len(s.Hosts) != hosts || len(s.Hosts[hosts-1].Timers) != timers ||
					len(s.Leases) != 4*pageSize {
					t.Errorf("%d hosts, %d leases, %v", len(s.Hosts), len(s.Leases), err)
				}
			})
		}
		all.Wait()
	}
	// A warm-up, because a driver may prepare a statement.
	if _, err := store.Read(t.Context(), cluster.Query{Events: 200, Runs: 200, Timers: 10_000}); err != nil {
		t.Fatal(err)
	}
	before := int64(0)
	if wire != nil {
		before = wire()
	}
	look()
	look()
	if n := calls.calls.Load() + locks.pages.Load(); n > 5 || locks.pages.Load() != 4 {
		t.Errorf("%d calls, %d of them for leases: want at most 5", n, locks.pages.Load())
	}
	if wire != nil {
		if n := wire() - before; n != 1 {
			t.Errorf("%d round trips to the registry, want 1", n)
		}
	}
}

// pageSize is less than what a snapshot reads, so that there are several pages.
const pageSize = 100

// manyLeases is a lock store that lists four pages.
type manyLeases struct {
	dlock.DistributedLock
	pages atomic.Int64
}

func (m *manyLeases) Enumerate(_ context.Context, after string, _ int) (driver.LeasePage, error) {
	n := m.pages.Add(1)
	var page driver.LeasePage
	for i := range pageSize {
		page.Leases = append(page.Leases, driver.LeaseInfo{Name: fmt.Sprint("timer:", n, "-", i), ExpiresIn: time.Hour})
	}
	if len(after) < 3 {
		page.Next = after + "+"
	}
	return page, nil
}
