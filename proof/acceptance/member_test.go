//go:build unix

package acceptance

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/proof/servertest"
)

const (
	// memberEnv makes the test binary run as a member. Its value is the place as JSON.
	memberEnv = "TICKSLOT_ACCEPTANCE"

	ttl           = 2 * time.Second
	retryInterval = 500 * time.Millisecond
	storeTimeout  = ttl / 4 // for locks and the registry
	snapshotAge   = 20 * time.Millisecond
)

// A place says where a member finds the store.
type place struct {
	Store string // redis, postgres, sqlite
	At    string // address, URL or file
	Lock  string // Redis: the prefix of all keys
}

// An answer is a member's response when it is asked for the leader.
type answer struct {
	Node    string
	Leading bool // it leads, according to its Elector
	Leaders []leaderAnswer
	Hosts   map[string]cluster.HostState // by holder
	ReadAge time.Duration
	Err     string
}

type leaderAnswer struct {
	Holder string
	Own    bool
}

// member is a process of the fleet. It prints the address at which it answers, and runs until its
// standard input ends.
func member(at place) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	stores, err := open(ctx, at)
	if err != nil {
		return err
	}
	defer stores.close()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	registry, err := cluster.New(cluster.Config{Store: stores.registry, Locks: stores.locks, TTL: ttl,
		StoreTimeout: storeTimeout, SnapshotAge: snapshotAge, Logger: logger})
	if err != nil {
		return err
	}
	session, err := dlock.NewSession(registry.Decorate(stores.locks), dlock.SessionOptions{TTL: ttl,
		StoreTimeout: storeTimeout, Holder: registry.Holder()})
	if err != nil {
		return err
	}
	elector, err := leader.New(session, leader.Role{Name: "relay", RetryInterval: retryInterval, Logger: logger,
		Run: func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return ctx.Err() }})
	if err != nil {
		return err
	}
	registry.Add(elector)
	registry.Add(session)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: who(registry, elector)}
	go server.Serve(listener)
	fmt.Println(listener.Addr())

	ended := make(chan error, 2)
	go func() { ended <- registry.Run(ctx) }()
	go func() { ended <- elector.Run(ctx) }()
	err = errors.Join(<-ended, <-ended)
	return errors.Join(err, session.Close(context.Background()), server.Close())
}

func who(registry *cluster.Registry, elector *leader.Elector) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := registry.Snapshot(r.Context())
		a := answer{Node: s.Self.Holder.String(), Leading: elector.Status().State == leader.StateLeading,
			Hosts: map[string]cluster.HostState{}, ReadAge: s.ReadAge}
		for _, l := range s.HeldLeases(cluster.KindLeader) {
			a.Leaders = append(a.Leaders, leaderAnswer{l.Holder.String(), l.Own})
		}
		for _, h := range s.Hosts {
			a.Hosts[h.Holder.String()] = h.State
		}
		if err != nil {
			a.Err = err.Error()
		}
		_ = json.NewEncoder(w).Encode(a)
	}
}

// stores are a member's connections to the store. The registry has its own.
type stores struct {
	locks    dlock.DistributedLock
	registry cluster.Store
	close    func()
}

func open(ctx context.Context, at place) (*stores, error) {
	switch at.Store {
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: at.At, Password: servertest.Canary})
		// The server has just started, so the quarantine is as short as the leases.
		locks := redislock.New(client, redislock.Options{Prefix: at.Lock, QuarantineTTL: ttl})
		registry := redisregistry.New(client, redisregistry.Options{Prefix: at.Lock})
		return &stores{locks, registry, func() { registry.Close(); locks.Close(); client.Close() }}, nil
	case "postgres":
		// If a call times out before it has a connection, a pgx pool keeps connecting. database/sql
		// stops with the call, so it would never connect if connecting took longer.
		return openSQL(ctx, func() (*sql.DB, func(), error) {
			config, err := pgxpool.ParseConfig(at.At)
			if err != nil {
				return nil, nil, err
			}
			config.MaxConns = 3
			pool, err := pgxpool.NewWithConfig(ctx, config)
			if err != nil {
				return nil, nil, err
			}
			return stdlib.OpenDBFromPool(pool), pool.Close, nil
		}, sqllock.Postgres, sqlregistry.Postgres)
	case "sqlite":
		dsn := url.URL{Scheme: "file", Path: at.At, RawQuery: "_pragma=synchronous(normal)"}
		return openSQL(ctx, func() (*sql.DB, func(), error) {
			db, err := sql.Open("sqlite", dsn.String())
			if err == nil {
				db.SetMaxOpenConns(3)
				db.SetMaxIdleConns(3)
			}
			return db, func() {}, err
		}, sqllock.SQLite, sqlregistry.SQLite)
	}
	return nil, fmt.Errorf("no store %q", at.Store)
}

func openSQL(ctx context.Context, connect func() (*sql.DB, func(), error),
	lock func(*sql.DB, sqllock.Options) *sqllock.Store,
	register func(*sql.DB, sqlregistry.Options) *sqlregistry.Store) (*stores, error) {
	var dbs [2]*sql.DB
	var closes [2]func()
	for i := range dbs {
		var err error
		if dbs[i], closes[i], err = connect(); err != nil {
			return nil, err
		}
	}
	locks, registry := lock(dbs[0], sqllock.Options{}), register(dbs[1], sqlregistry.Options{})
	s := &stores{locks, registry, func() {
		locks.Close()
		for i, db := range dbs {
			db.Close()
			closes[i]()
		}
	}}
	return s, errors.Join(locks.Migrate(ctx), registry.Migrate(ctx))
}
