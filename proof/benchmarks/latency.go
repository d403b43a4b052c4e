package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/redlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A backend is a store for the latency table, with its server and clients.
type backend struct {
	lock  dlock.DistributedLock
	proof *proof         // nil: use the slot's fences, which grow with every grant
	stop  []func() error // in reverse order
}

func (b *backend) onClose(f func()) { b.stop = append(b.stop, func() error { f(); return nil }) }

const (
	// latencyTTL is short because a newly started server grants a lease only once its uptime
	// exceeds the longest lease.
	latencyTTL   = 3 * time.Second
	latencySlots = 5
	// away is the round trip to servers that are not on this machine.
	away = 10 * time.Millisecond
)

// latency measures how long one caller waits for a free slot, on each store.
func (l *lab) latency() Group {
	g := Group{
		Name: "latency of an acquire, store by store", Unit: "µs (mean)", Less: true, Sharing: caseByCase,
		Window: 500 * time.Millisecond,
	}
	for _, c := range []struct {
		name string
		open func(*backend) error
	}{
		{"Redis", onOneRedis("")},
		{"Redis, 10 ms away", far(l.redis.Addr(), onOneRedis)},
		{"Redis Sentinel", onSentinel},
		{"Redis Cluster, three masters", onCluster},
		{"Redlock, three servers", onRedlock},
		{"Postgres, pgx", l.postgres.latency("")},
		{"Postgres, pgx, 10 ms away", far(l.postgres.Addr(), l.postgres.latency)},
		{"MariaDB", onMariaDB},
		{"SQLite, a file", onSQLite},
		{"memory", func(b *backend) error { b.lock = memlock.New(); return nil }},
	} {
		g.Cases = append(g.Cases, on(c.name, func() (*cycles, error) { return oneCaller(c.open) }))
	}
	return g
}

// oneCaller acquires and releases a slot repeatedly.
func oneCaller(open func(*backend) error) (*cycles, error) {
	b := &backend{}
	c := &cycles{workers: 1, value: meanTime}
	err := open(b)
	if err == nil {
		c.take, err = b.taker()
	}
	c.stop = b.stop
	if err == nil {
		err = testkit.Poll(30*time.Second, "the first grant", func(context.Context) error { return c.once(0) })
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.proof = *b.proof
	return c, nil
}

// taker takes slots like a timer, each with a tick, and counts grants whose fence has grown.
func (b *backend) taker() (taker, error) {
	session, err := dlock.NewSession(b.lock, dlock.SessionOptions{TTL: latencyTTL, StoreTimeout: latencyTTL / 3})
	if err != nil {
		return nil, err
	}
	b.stop = append(b.stop, func() error { return session.Close(ctx) })
	semaphore := session.Semaphore("timer:latency", latencySlots)
	var grants float64
	var last [latencySlots]dlock.Fence
	if b.proof == nil {
		b.proof = &proof{count: func() (float64, error) { return grants, nil }, grant: 1}
	}
	return func(int) (func() error, error) {
		lease, err := semaphore.TryAcquireTick(ctx, driver.Tick{At: time.Now(), Max: 1})
		if err != nil {
			return nil, err
		}
		if fence := lease.Fence(); fence > last[lease.Slot()] {
			last[lease.Slot()] = fence
			grants++
		}
		return func() error { return lease.Release(ctx) }, nil
	}, nil
}

// far opens a backend behind a proxy that adds 10 ms to each round trip.
func far(addr string, open func(proxied string) func(*backend) error) func(*backend) error {
	return func(b *backend) error {
		p, err := servertest.NewProxy(addr)
		if err != nil {
			return err
		}
		b.onClose(p.Close)
		p.Delay(away / 2)
		return open(p.Addr())(b)
	}
}

// onOneRedis uses its own server, or the one behind the proxy.
func onOneRedis(proxied string) func(*backend) error {
	return func(b *backend) error {
		addr := proxied
		if addr == "" {
			s, err := redistest.Start(redistest.Options{})
			if err != nil {
				return err
			}
			b.onClose(s.Close)
			addr = s.Addr()
		}
		return b.useRedis(newClient(addr))
	}
}

func (b *backend) useRedis(client redis.UniversalClient) error {
	store := redislock.New(client, redislock.Options{QuarantineTTL: latencyTTL})
	b.lock, b.stop = store, append(b.stop, client.Close, store.Close)
	return nil
}

func onSentinel(b *backend) error {
	s, err := redistest.StartSentinel(redistest.SentinelOptions{Sentinels: 3})
	if err != nil {
		return err
	}
	b.onClose(s.Close)
	store := redislock.NewFailover(&redis.FailoverOptions{MasterName: s.MasterName(), SentinelAddrs: s.SentinelAddrs(),
		Password: servertest.Canary, SentinelPassword: servertest.Canary}, redislock.Options{QuarantineTTL: latencyTTL})
	b.lock, b.stop = store, append(b.stop, store.Close)
	return nil
}

func onCluster(b *backend) error {
	s, err := redistest.StartCluster(3)
	if err != nil {
		return err
	}
	b.onClose(s.Close)
	return b.useRedis(redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), Password: servertest.Canary}))
}

// onRedlock has no fences, so the servers count the commands.
func onRedlock(b *backend) error {
	var clients []redis.UniversalClient
	for range 3 {
		s, err := redistest.Start(redistest.Options{})
		if err != nil {
			return err
		}
		client := newClient(s.Addr())
		clients = append(clients, client)
		b.onClose(s.Close)
		b.stop = append(b.stop, client.Close)
		if b.proof == nil {
			one := (&redisServer{Server: s, admin: client}).commands()
			b.proof = &proof{count: one.count, attempt: 1, grant: 1}
		}
	}
	store := redlock.New(clients, redlock.Options{})
	b.lock, b.stop = store, append(b.stop, store.Close)
	return nil
}

// latency uses Postgres with a separate table, or the one behind the proxy.
func (p *postgresServer) latency(proxied string) func(*backend) error {
	return func(b *backend) error {
		config := p.admin.Config().Copy()
		if proxied != "" {
			host, port, err := net.SplitHostPort(proxied)
			if err != nil {
				return err
			}
			number, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return err
			}
			config.ConnConfig.Host, config.ConnConfig.Port = host, uint16(number)
		}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		b.onClose(pool.Close)
		return b.useSQL(pgxlock.New(pool, sqllock.Options{}))
	}
}

func (b *backend) useSQL(store *sqllock.Store) error {
	b.lock, b.stop = store, append(b.stop, store.Close)
	return store.Migrate(ctx)
}

func onMariaDB(b *backend) error {
	s, err := sqltest.StartMariaDB(sqltest.Options{})
	if err != nil {
		return err
	}
	b.onClose(s.Close)
	if _, err := s.Exec("", "CREATE DATABASE latency"); err != nil {
		return err
	}
	db, err := sql.Open("mysql", s.DSN("", "", "latency"))
	if err != nil {
		return err
	}
	b.stop = append(b.stop, db.Close)
	return b.useSQL(sqllock.MySQL(db, sqllock.Options{}))
}

func onSQLite(b *backend) error {
	dir, err := os.MkdirTemp("", "tickslot-bench")
	if err != nil {
		return err
	}
	b.stop = append(b.stop, func() error { return os.RemoveAll(dir) })
	file := url.URL{Scheme: "file", Path: filepath.Join(dir, "locks.db"), RawQuery: "_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return err
	}
	b.stop = append(b.stop, db.Close)
	return b.useSQL(sqllock.SQLite(db, sqllock.Options{}))
}
