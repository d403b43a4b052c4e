// Command tenants creates a report for each of 1,000 tenants every minute, at most ten at once in
// all copies with the same REDIS_URL (for example redis://localhost:6379/0).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/manager"
)

type tenant struct{ id, cron, zone string } // a row of your tenants table

func main() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal("set REDIS_URL to something like redis://localhost:6379/0")
	}
	rows := make([]tenant, 1000)
	for i := range rows {
		rows[i] = tenant{fmt.Sprint("tenant-", i), "* * * * *", "Europe/Berlin"}
	}
	store := redislock.New(redis.NewClient(options), redislock.Options{Prefix: "tenants:"})
	log.Fatal(run(context.Background(), store, rows, func(t tenant) { log.Println("report of", t.id) }))
}

func run(ctx context.Context, store dlock.DistributedLock, rows []tenant, report func(tenant)) error {
	timers, err := timer.New(timer.Config{Store: store, MaxRuns: 10, // on this host
		Limits: []timer.Limit{{Name: "reports", Size: 10}}}) // in the fleet
	tenants, errTenants := manager.New(manager.Config[tenant]{
		Scheduler: timers,
		Rows:      func(context.Context) ([]tenant, error) { return rows, nil },
		Name:      func(t tenant) string { return "report:" + t.id },
		Timer: func(t tenant) (timer.Timer, error) {
			return timer.Timer{Schedule: schedule.Cron(t.cron, t.zone), Limits: []string{"reports"},
				OnFull: timer.FullWait, Run: func(context.Context) error { report(t); return nil }}, nil
		}, // runs above a limit wait
	})
	if err := errors.Join(err, errTenants); err != nil {
		return err
	}
	go tenants.Run(ctx)
	return timers.Run(ctx)
}
