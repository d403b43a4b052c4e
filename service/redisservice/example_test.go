package redisservice_test

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/redisservice"
	"github.com/tickslot/tickslot/timer"
)

func processOrders(context.Context) error { return nil }
func chargeCards(context.Context) error   { return nil }
func warmCache(context.Context) error     { return nil }

// This program is one host of a fleet, with probes, metrics and the page.
func Example() {
	run := func(ctx context.Context) error {
		rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
		defer rdb.Close()
		svc, err := redisservice.New(rdb, service.Config{
			Name: "shop", Environment: "production",
			PreStopDelay: 5 * time.Second,  // load balancers see that /readyz fails
			DrainTimeout: 30 * time.Second, // time for runs to finish
		},
			timer.Timer{Name: "process-orders", Schedule: schedule.Every(time.Minute),
				MaxConcurrency: 3, MaxPerTick: 1, Run: processOrders},
			timer.Timer{Name: "charge-cards", Schedule: schedule.Daily("02:30", "Europe/Berlin"),
				OnStoreDown: timer.StoreDownSkip, Run: chargeCards},
			timer.Timer{Name: "warm-cache", Schedule: schedule.Every(10 * time.Second),
				LocalOnly: true, Run: warmCache},
		)
		if err != nil {
			return err // every fault of every timer, and how to repair it
		}
		mux := http.NewServeMux()
		mux.Handle("/", svc.Probes()) // /livez, /readyz, /startupz
		mux.Handle("/metrics", svc.Metrics())
		mux.Handle("/admin/", svc.Page(page.Config{Authorize: page.Loopback}))
		return svc.Run(ctx, tickslot.Server(&http.Server{Addr: ":8080", Handler: mux}))
	}
	_ = run // it needs a Redis server
}
