// Command kubernetes is a service for a pod, with the probes and periods of
// deploy/kubernetes/settle.yaml. Its timer writes to Postgres, and a replaced run cannot overwrite
// the write of a later one.
//
//	DATABASE_URL=postgres://user:password@localhost:5432/database go run ./examples/kubernetes
//
// When the pod is deleted, Kubernetes sends SIGTERM. From then on, /readyz returns 503, while the
// pod serves requests and runs timers for -prestop. Then nothing new starts, the current run may
// finish, its slot is released, and the process exits with status 0.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func main() {
	addr := flag.String("addr", ":8080", "where requests are served")
	probes := flag.String("probes", "", "where probes and /metrics are served; without it: where requests are")
	preStop := flag.Duration("prestop", 5*time.Second, "how long to serve after SIGTERM, until no node sends requests")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stdout, nil))) // with milliseconds
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serve(ctx, *addr, *probes, *preStop); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, addr, probesAddr string, preStop time.Duration) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil { // err may quote the password
		return errors.New("set DATABASE_URL to something like postgres://user:password@localhost:5432/database")
	}
	defer pool.Close()
	lock := pgxlock.New(pool, sqllock.Options{})
	defer lock.Close()
	if err := errors.Join(lock.Migrate(ctx), createAccount(ctx, pool)); err != nil {
		return err
	}
	config := timer.Config{Store: lock, PreStopDelay: preStop, DrainTimeout: 10 * time.Second,
		Registerer: prometheus.DefaultRegisterer}
	timers, err := timer.New(config, timer.Timer{
		Name:        "settle",
		Schedule:    schedule.Every(time.Second),
		OnStoreDown: timer.StoreDownSkip, // without the store, a run has no fence, and its writes would be refused
		Run:         settle(pool),
	})
	if err != nil {
		return err
	}

	probes, requests := http.NewServeMux(), http.NewServeMux()
	probes.Handle("/", health.New(timers)) // /livez, /readyz, /startupz
	probes.Handle("/metrics", promhttp.Handler())
	requests.Handle("GET /{$}", balance(pool))
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	probed := listener
	server := &http.Server{Handler: requests, ReadHeaderTimeout: 5 * time.Second}
	if probesAddr != "" { // then clients of the service cannot reach probes and metrics
		if probed, err = net.Listen("tcp", probesAddr); err != nil {
			return err
		}
		side := &http.Server{Handler: probes, ReadHeaderTimeout: 5 * time.Second}
		go side.Serve(probed)
		defer side.Close() // last: probes are answered until the end
	} else {
		requests.Handle("/", probes)
	}
	go server.Serve(listener)
	slog.Info("serving", "addr", listener.Addr(), "probes", probed.Addr())

	err = timers.Run(ctx) // requests are served until it returns
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ctx))
}
