// Command redis is one host of a fleet that shares a timer through Redis. Start it several times:
//
//	export REDIS_URL=redis://localhost:6379/0
//	go run ./examples/redis
//
// All copies together never run more than two "poll" at once. If a copy is killed (kill -9), others
// can take its slot within -ttl. A newly started Redis grants nothing for -ttl, because it may have
// lost leases. Each copy logs the address of its probes and /metrics. deploy/ runs three copies
// under Docker Compose, with Prometheus and Grafana.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func main() {
	addr := flag.String("addr", "localhost:0", "where requests, probes and /metrics are served")
	preStop := flag.Duration("prestop", 0, "how long to serve after SIGTERM, until no load balancer sends requests")
	ttl := flag.Duration("ttl", 15*time.Second, "how long the slot of a copy that was killed stays taken; at least 3s")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stdout, nil))) // with milliseconds
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *preStop, *ttl); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, addr string, preStop, ttl time.Duration) error {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil { // err may quote the password
		return errors.New("set REDIS_URL to something like redis://user:password@localhost:6379/0")
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	lock := redislock.New(rdb, redislock.Options{Prefix: "example:", QuarantineTTL: ttl})
	defer lock.Close()
	config := timer.Config{Store: lock, TTL: ttl, PreStopDelay: preStop, DrainTimeout: 10 * time.Second,
		Registerer: prometheus.DefaultRegisterer}
	timers, err := timer.New(config, timer.Timer{
		Name:           "poll",
		Schedule:       schedule.Every(500 * time.Millisecond),
		MaxConcurrency: 2, // concurrent runs in all copies together
		MaxPerTick:     2, // up to 2 copies run each tick
		MaxRunTime:     10 * time.Second,
		OnStoreDown:    timer.StoreDownSkip, // without Redis nothing runs, so the limit always holds
		Run:            poll,
	})
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", health.New(timers)) // /livez, /readyz, /startupz
	mux.Handle("/metrics", promhttp.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	slog.Info("serving", "addr", listener.Addr())

	err = timers.Run(ctx) // the server answers until it returns
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ctx))
}

func poll(ctx context.Context) error {
	run, _ := timer.RunFromContext(ctx)
	slog.Info("poll starts", "tick", run.Tick(), "slot", run.Slot(), "fence", run.Fence())
	defer slog.Info("poll ends", "tick", run.Tick(), "slot", run.Slot(), "fence", run.Fence())
	select {
	case <-time.After(100*time.Millisecond + rand.N(1100*time.Millisecond)):
		return nil
	case <-ctx.Done(): // the lease was lost, or the run took too long
		return context.Cause(ctx)
	}
}
