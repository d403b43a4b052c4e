package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // any other SQLite driver works

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// ttl is how long the leases of a host that was killed are held. The default is 15 s; here it is
// short, so that there is something to see.
const ttl = 3 * time.Second

// serve is a host, until ctx ends.
func serve(ctx context.Context, path, addr string) error {
	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	own, err := open(path) // so that the registry never takes a connection from the locks
	if err != nil {
		return err
	}
	defer own.Close()
	locks, rows := sqllock.SQLite(db, sqllock.Options{}), sqlregistry.SQLite(own, sqlregistry.Options{})
	defer locks.Close()
	if err := errors.Join(locks.Migrate(ctx), rows.Migrate(ctx)); err != nil {
		return err
	}

	registry, err := cluster.New(cluster.Config{Store: rows, Locks: locks, TTL: ttl,
		SnapshotAge: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	lock := registry.Decorate(locks) // for the events
	timers, err := timer.New(timer.Config{Store: lock, TTL: ttl, Holder: registry.Holder(),
		Hooks: clustertimer.Hooks(registry, timer.Hooks{})}, // for the last runs
		timer.Timer{Name: "send-digest", Schedule: schedule.Every(time.Second), Run: busy(700 * time.Millisecond)},
		timer.Timer{Name: "resize-images", Schedule: schedule.Every(time.Second), MaxConcurrency: 2,
			MaxPerTick: 2, Run: busy(2 * time.Second)})
	if err != nil {
		return err
	}
	session, err := dlock.NewSession(lock, dlock.SessionOptions{TTL: ttl, Holder: registry.Holder()})
	if err != nil {
		return err
	}
	relay, err := leader.New(session, leader.Role{Name: "outbox-relay", RetryInterval: ttl / 6,
		Run: func(ctx context.Context, _ *leader.Term) error { return busy(time.Hour)(ctx) }})
	if err != nil {
		return err
	}
	registry.Add(timers)
	registry.Add(relay)

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /who", who(registry))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	fmt.Println("http://" + listener.Addr().String())

	// The registry ends last, to tell what the others release in the end.
	telling, last := context.WithCancel(context.WithoutCancel(ctx))
	defer last()
	told := make(chan error, 1)
	go func() { told <- registry.Run(telling) }()

	group, ctx := errgroup.WithContext(ctx) // one that fails ends the others
	context.AfterFunc(ctx, func() { server.Close() })
	group.Go(func() error { return timers.Run(ctx) })
	group.Go(func() error { return relay.Run(ctx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	err = errors.Join(group.Wait(), session.Close(telling))
	last()
	return errors.Join(err, <-told)
}

// busy returns work that takes a while.
func busy(takes time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done(): // the lease is lost, or the host ends
			return context.Cause(ctx)
		}
	}
}

// open does not touch the file yet.
func open(path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(3)
	}
	return db, err
}
