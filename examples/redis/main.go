// Command redis is one host of a fleet that shares a timer through Redis. Start it several times:
//
//	export REDIS_URL=redis://localhost:6379/0
//	go run ./examples/redis
//
// All copies together never run more than two "poll" at once. The slot of a copy that is killed
// (kill -9) is free for the others within -ttl. A Redis that has just been started grants nothing
// for -ttl, because it may have forgotten who holds what. METRICS=:9090 serves /metrics.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func main() {
	ttl := flag.Duration("ttl", 15*time.Second, "how long the slot of a copy that was killed stays taken; at least 3s")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stdout, nil))) // with milliseconds
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil { // which may quote the password
		log.Fatal("set REDIS_URL to something like redis://user:password@localhost:6379/0")
	}
	rdb := redis.NewClient(options)
	lock := redislock.New(rdb, redislock.Options{Prefix: "example:", QuarantineTTL: *ttl})
	timers, err := timer.New(timer.Config{Lock: lock, TTL: *ttl, Registerer: prometheus.DefaultRegisterer}, timer.Timer{
		Name:           "poll",
		Schedule:       schedule.Every(500 * time.Millisecond),
		MaxConcurrency: 2, // at once, in all copies together
		MaxRunTime:     10 * time.Second,
		OnStoreDown:    timer.StoreDownSkip, // without Redis nothing runs, rather than too much
		Run:            poll,
	})
	if err != nil {
		log.Fatal(err)
	}
	if addr := os.Getenv("METRICS"); addr != "" {
		go func() { // the runs go on without
			slog.Error("no metrics", "err", http.ListenAndServe(addr, promhttp.Handler()))
		}()
	}
	err = timers.Run(ctx) // returns when the last run has finished and released its slot
	lock.Close()
	rdb.Close()
	if err != nil {
		log.Fatal(err)
	}
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
