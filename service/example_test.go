package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/timer"
)

// New takes any stores, here in-memory ones for a single process. Packages pgservice, sqliteservice
// and redisservice create the stores of a fleet.
func ExampleNew() {
	stores := service.Stores{Locks: memlock.New(), Registry: cluster.NewMemoryStore()}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	svc, err := service.New(stores, service.Config{Logger: slog.New(slog.DiscardHandler)}, timer.Timer{
		Name: "rates", Schedule: schedule.Every(10 * time.Millisecond),
		Run: func(context.Context) error {
			fmt.Println("the rates are fetched")
			stop()
			return nil
		}})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/", svc.Probes())
	mux.Handle("/metrics", svc.Metrics())
	mux.Handle("/admin/", svc.Page(page.Config{Authorize: page.Loopback}))
	fmt.Println(svc.Run(ctx, tickslot.Server(&http.Server{Addr: "127.0.0.1:0", Handler: mux})))
	// Output:
	// the rates are fetched
	// <nil>
}
