package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // any other SQLite driver works

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/sqliteservice"
	"github.com/tickslot/tickslot/timer"
)

// ttl is how long a killed host's leases are held. The default is 15 s; a short value makes the
// demonstration quick.
const ttl = 3 * time.Second

// serve runs a host until ctx ends.
func serve(ctx context.Context, path, addr string) error {
	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	svc, err := sqliteservice.New(db, service.Config{TimersOnly: true, Timers: timer.Config{TTL: ttl},
		Registry: cluster.Config{TTL: ttl, SnapshotAge: 100 * time.Millisecond}},
		timer.Timer{Name: "send-digest", Schedule: schedule.Every(time.Second), Run: busy(700 * time.Millisecond)},
		timer.Timer{Name: "resize-images", Schedule: schedule.Every(time.Second), MaxConcurrency: 2,
			MaxPerTick: 2, Run: busy(2 * time.Second)})
	if err != nil {
		return err
	}
	defer svc.Close()
	registry := svc.Registry()
	session, err := dlock.NewSession(svc.Locks(), dlock.SessionOptions{TTL: ttl, Holder: registry.Holder()})
	if err != nil {
		return err
	}
	relay, err := leader.New(session, leader.Role{Name: "outbox-relay", RetryInterval: ttl / 6,
		Run: func(ctx context.Context, _ *leader.Term) error { return busy(time.Hour)(ctx) }})
	if err != nil {
		return err
	}
	registry.Add(relay)

	mux := http.NewServeMux()
	mux.Handle("GET /who", who(registry))
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(l net.Listener) context.Context {
			fmt.Println("http://" + l.Addr().String())
			return context.WithoutCancel(ctx)
		}}
	// Parts stop in reverse order: the session after the relay, and the registry last.
	return svc.Run(ctx, tickslot.Server(server), closing(session), relay)
}

// closing returns a part that closes a session when the parts after it have stopped.
func closing(session *dlock.Session) tickslot.Part {
	return tickslot.PartFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return session.Close(context.WithoutCancel(ctx))
	})
}

// busy returns work that takes some time.
func busy(takes time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done(): // the lease was lost, or the host is stopping
			return context.Cause(ctx)
		}
	}
}

// open returns a database without opening the file.
func open(path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path,
		RawQuery: "_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(6)
	}
	return db, err
}
