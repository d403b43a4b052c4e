package registrycost_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// BenchmarkAcquireRelease measures the median time of an acquire and its release without a
// registry, with one, and with one that does not answer: its Redis is paused, or its Postgres table
// is locked. They take turns every few cycles, so that conditions are equal. off-p50-µs is the time
// without a registry, and the other values are ratios to it. "control" is the ratio of no registry
// to itself. load is the machine's load average.
func BenchmarkAcquireRelease(b *testing.B) {
	b.Run("Redis", func(b *testing.B) {
		server, hung := redistest.Shared(b), redistest.New(b)
		open := func(addr string) cluster.Store {
			store := redisregistry.New(redisClient(b, addr), redisregistry.Options{Prefix: unique(b)})
			b.Cleanup(func() { store.Close() })
			return store
		}
		locks := redisLocks(b, server.Addr(), ways...)
		well, ill := open(server.Addr()), open(hung.Addr())
		if err := hung.Pause(); err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := hung.Resume(); err != nil {
				b.Error(err)
			}
		}()
		compare(b, locks, well, ill)
	})
	b.Run("Postgres", func(b *testing.B) {
		server := sqltest.SharedPostgres(b)
		dsn := server.DSN("", "", server.NewDatabase(b))
		db := openDB(b, "pgx", dsn)
		open := func(table string) cluster.Store {
			store := sqlregistry.Postgres(openDB(b, "pgx", dsn), sqlregistry.Options{TableName: table})
			if err := store.Migrate(context.Background()); err != nil {
				b.Fatal(err)
			}
			return store
		}
		well, ill := open("well"), open("ill")
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("LOCK TABLE ill IN ACCESS EXCLUSIVE MODE"); err != nil {
			b.Fatal(err)
		}
		compare(b, pgxLocks(b, dsn), well, ill)
	})
}

// These are the ways to take a lock, and their names.
const (
	off = iota
	control
	on
	hangs
)

var ways = []string{off: "timer:off", control: "timer:control", on: "timer:on", hangs: "timer:hangs"}

const cyclesPerTurn = 20

func compare(b *testing.B, locks dlock.DistributedLock, well, ill cluster.Store) {
	decorated := func(store cluster.Store) (dlock.DistributedLock, *counted) {
		calls := &counted{Store: store}
		registry, err := cluster.New(cluster.Config{Store: calls, Locks: locks, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		run(b, registry)
		return registry.Decorate(locks), calls
	}
	withOne, written := decorated(well)
	withIll, hung := decorated(ill)
	stores := []dlock.DistributedLock{off: locks, control: locks, on: withOne, hangs: withIll}
	took := make([][]time.Duration, len(ways))
	cycle := func(way int) time.Duration {
		ctx := context.Background()
		req := driver.Request{Name: ways[way], Slots: 1, Token: rand.Text(), TTL: ttl}
		began := time.Now()
		g, err := stores[way].TryAcquire(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := stores[way].Release(ctx, g); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	for range cyclesPerTurn { // opens connections, and prepares statements and scripts
		for way := range ways {
			cycle(way)
		}
	}
	for i := 0; b.Loop(); i++ {
		for n := range ways {
			way := (i + n) % len(ways)
			for range cyclesPerTurn {
				took[way] = append(took[way], cycle(way))
			}
		}
	}
	p50 := make([]float64, len(ways))
	for way := range ways {
		slices.Sort(took[way])
		p50[way] = float64(took[way][len(took[way])/2])
	}
	if written.writes.Load() == 0 || hung.calls.Load() == 0 {
		b.Errorf("the registry that is well was written %d times, the other called %d times", written.writes.Load(),
			hung.calls.Load())
	}
	b.ReportMetric(p50[off]/1e3, "off-p50-µs")
	b.ReportMetric(p50[control]/p50[off], "control")
	b.ReportMetric(p50[on]/p50[off], "on")
	b.ReportMetric(p50[hangs]/p50[off], "hangs")
	b.ReportMetric(load(), "load")
	b.ReportMetric(0, "ns/op")
}

// load returns the load average, or 0 if unknown.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return n
}
