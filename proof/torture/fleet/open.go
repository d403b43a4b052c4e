//go:build linux && amd64

package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/proof/servertest"
)

// A StoreSpec tells one process how to connect to the store.
type StoreSpec struct {
	Kind   string
	Addrs  []string          // Redis; Sentinel: the sentinels
	Via    map[string]string // Redis Cluster, Sentinel: the proxy of each server
	Master string            // Sentinel: its name
	DSN    string            // Postgres, MariaDB; SQLite: the file
}

// A door is a process's connection to the store.
type door struct {
	lock interface {
		dlock.DistributedLock
		driver.Lister
	}
	// exhaust takes all connections of the application's pool until ctx ends.
	exhaust func(ctx context.Context)
	close   func()
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// The driver logs each broken connection, of which there are many.
func init() { _ = mysql.SetLogger(log.New(io.Discard, "", 0)) }

func open(spec StoreSpec, timing Timing) (*door, error) {
	// The servers have just started, so the quarantine is as short as the leases. Otherwise the
	// first half minute would be idle.
	opts := redislock.Options{QuarantineTTL: max(timing.TTL, clientTTL)}
	switch spec.Kind {
	case "redis":
		client := redis.NewClient(&redis.Options{Password: servertest.Canary, Addr: spec.Addrs[0], PoolSize: 3})
		return redisDoor(redislock.New(client, opts), client), nil
	case "sentinel":
		// The store does not use an application's pool that could be exhausted.
		lock := redislock.NewFailover(&redis.FailoverOptions{Password: servertest.Canary, MasterName: spec.Master,
			SentinelAddrs: spec.Addrs, Dialer: dialVia(spec.Via)}, opts)
		exhaust := func(ctx context.Context) { <-ctx.Done() }
		return &door{lock: lock, close: func() { lock.Close() }, exhaust: exhaust}, nil
	case "cluster":
		client := redis.NewClusterClient(&redis.ClusterOptions{Password: servertest.Canary, Addrs: spec.Addrs,
			PoolSize: 3, Dialer: dialVia(spec.Via)})
		return redisDoor(redislock.New(client, opts), client), nil
	case "postgres":
		config, err := pgxpool.ParseConfig(spec.DSN)
		if err != nil {
			return nil, err
		}
		config.MaxConns = 4
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			return nil, err
		}
		lock := pgxlock.New(pool, sqllock.Options{})
		return &door{lock: lock, close: func() { lock.Close(); pool.Close() }, exhaust: func(ctx context.Context) {
			var all sync.WaitGroup
			for range 2 * config.MaxConns {
				all.Go(func() { _, _ = pool.Exec(ctx, "SELECT pg_sleep(10)") })
			}
			all.Wait()
		}}, nil
	case "mariadb":
		db, err := sql.Open("mysql", spec.DSN)
		if err != nil {
			return nil, err
		}
		const most = 8
		db.SetMaxOpenConns(most)
		lock := sqllock.MySQL(db, sqllock.Options{})
		return &door{lock: lock, close: func() { lock.Close(); db.Close() }, exhaust: func(ctx context.Context) {
			var all sync.WaitGroup
			for range 2 * most {
				all.Go(func() { _, _ = db.ExecContext(ctx, "DO SLEEP(10)") })
			}
			all.Wait()
		}}, nil
	case "sqlite":
		db, err := openFile(spec.DSN)
		if err != nil {
			return nil, err
		}
		lock := sqllock.SQLite(db, sqllock.Options{})
		return &door{lock: lock, close: func() { lock.Close(); db.Close() }}, nil
	default:
		return nil, fmt.Errorf("no store %q: use redis, sentinel, cluster, postgres, mariadb or sqlite", spec.Kind)
	}
}

func dialVia(via map[string]string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, cmp.Or(via[addr], addr))
	}
}

func redisDoor(lock *redislock.Store, client redis.UniversalClient) *door {
	return &door{lock: lock, close: func() { lock.Close(); client.Close() }, exhaust: func(ctx context.Context) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for ctx.Err() == nil {
					client.BLPop(ctx, time.Second, "nothing")
				}
			})
		}
		all.Wait()
	}}
}

func openFile(path string) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=synchronous(normal)"}
	if !slices.Contains(sql.Drivers(), "sqlite") {
		return nil, errors.New("SQLite is not built in: go run -tags sqlite")
	}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(4)
	}
	return db, err
}
