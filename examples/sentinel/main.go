// Command sentinel is a small service with two timers on Redis Sentinel. Start it several times.
// Name all sentinels and the master:
//
//	export REDIS_URL='redis://s1:26379/0?master_name=shop&password=secret&addr=s2:26379&addr=s3:26379'
//	go build -o /tmp/timers ./examples/sentinel
//	/tmp/timers -addr :8081 &
//	/tmp/timers -addr :8082 &
//	/tmp/timers -addr :8083 &
//
// Each copy prints its runs. Together, the copies never run more than two "resize-images" at once,
// and run "send-digest" once per tick. REDIS_URL=redis://localhost:6379/0 is a single Redis. Things
// to try:
//
//   - kill -STOP the master for 20 seconds: the copies switch to the new master, which grants
//     nothing for half a minute, and do not return to the old one when it resumes. "make proof
//     WHAT=sentinel" does all that.
//   - kill -9 a copy during a run: another copy can take its slot within 15 seconds, the length of
//     a lease. After kill without -9, or Ctrl-C, the copy first finishes its runs, and the slot is
//     free immediately.
//   - Stop all servers: "resize-images" continues in every copy (StoreDownRunLocal, the default),
//     "send-digest" pauses (StoreDownSkip). The copies stay ready and report that they are
//     degraded: curl -i 'localhost:8081/readyz?verbose'.
//   - Start them again: for 30 seconds (QuarantineTTL) a master grants nothing, because it may have
//     lost leases that are still held. The same applies to a newly started master.
//   - curl -s localhost:8081/metrics | grep tickslot_ticks_total shows which ticks ran here, and
//     why the others did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
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
	addr := flag.String("addr", ":8081", "where /livez, /readyz and /metrics are served")
	// REDIS_URL is not the flag's default, because -help would print its password.
	redisURL := flag.String("redis", "", "`URL` of the Redis; REDIS_URL is safer, because ps does not show it")
	flag.Parse()
	if *redisURL == "" {
		*redisURL = os.Getenv("REDIS_URL")
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil))) // with milliseconds
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish; the second does not wait
	if err := serve(ctx, *addr, *redisURL); err != nil {
		fmt.Fprintln(os.Stderr, "sentinel:", err)
		os.Exit(1)
	}
}

// serve runs the timers and the probes until ctx ends and the last run has finished.
func serve(ctx context.Context, addr, redisURL string) error {
	store, closeStore, err := openStore(redisURL)
	if err != nil {
		return err
	}
	defer closeStore()

	registry := prometheus.NewRegistry()
	timers, err := timer.New(timer.Config{Store: store, Logger: slog.Default(), Registerer: registry},
		timer.Timer{
			Name:           "resize-images",
			Schedule:       schedule.Every(5 * time.Second),
			MaxConcurrency: 2, // concurrent runs in all copies together
			MaxPerTick:     2, // up to 2 copies run each tick
			MaxPerHost:     1, // so that one copy does not take both slots
			MaxRunTime:     time.Minute,
			Run:            work(12 * time.Second),
		},
		timer.Timer{
			Name:        "send-digest",
			Schedule:    schedule.Every(10 * time.Second),
			OnStoreDown: timer.StoreDownSkip, // a missing digest is better than two
			Run:         work(time.Second),
		},
	)
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("/", health.New(timers))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop() // without probes the service must end
		served <- server.Serve(listener)
	}()

	slog.Info("running", "addr", listener.Addr(), "holder", timers.Status().Holder)
	err = timers.Run(ctx) // drains when ctx ends. Until it returns, /readyz answers 503 and /livez 200

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ctx))
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// openStore returns a store on a single Redis, or on the master named by Sentinel.
func openStore(address string) (store *redislock.Store, closeStore func(), err error) {
	options := redislock.Options{Prefix: "example:"}
	if u, err := url.Parse(address); err == nil && u.Query().Has("master_name") {
		failover, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, nil, errBadURL
		}
		store = redislock.NewFailover(failover, options)
		return store, func() { store.Close() }, nil
	}
	single, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, errBadURL
	}
	client := redis.NewClient(single)
	store = redislock.New(client, options)
	return store, func() { store.Close(); client.Close() }, nil
}

// errBadURL is returned instead of the parser's error, which may quote the password.
var errBadURL = errors.New("set REDIS_URL to something like redis://user:password@host:6379/0, or " +
	"redis://sentinel-1:26379/0?master_name=mymaster&password=secret&addr=sentinel-2:26379&addr=sentinel-3:26379")

// work returns a handler that logs its run and is busy for a while.
func work(duration time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		log := slog.With("timer", run.Timer(), "slot", run.Slot(), "tick", run.Tick().Format(time.TimeOnly))
		valid := run.Valid()
		log.Info("run starts", "fence", run.Fence(), "valid", valid)
		step := time.NewTicker(50 * time.Millisecond)
		defer step.Stop()
		for end := time.Now().Add(duration); time.Now().Before(end); {
			select {
			case <-step.C: // one unit of work
				if now := run.Valid(); now != valid { // work that must never overlap stops when it is false
					valid = now
					log.Info("run goes on", "fence", run.Fence(), "valid", valid)
				}
			case <-ctx.Done(): // the lease is lost, or the run or the drain took too long
				log.Info("run stops", "why", context.Cause(ctx))
				return context.Cause(ctx)
			}
		}
		log.Info("run ends")
		return nil
	}
}
