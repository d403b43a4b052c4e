package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Timers can be added and removed while the scheduler runs, for example one per tenant.
func ExampleScheduler_Register() {
	timers, err := timer.New(timer.Config{Store: memlock.New()})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()

	ran := make(chan string, 100)
	for _, tenant := range []string{"acme", "globex"} {
		err := timers.Register(timer.Timer{
			Name:     "sync:" + tenant,
			Schedule: schedule.Every(20 * time.Millisecond),
			Run:      func(context.Context) error { ran <- tenant; return nil },
		})
		fmt.Println(tenant, err)
	}
	seen := map[string]bool{}
	for len(seen) < 2 {
		seen[<-ran] = true
	}
	fmt.Println("both ran")
	// Output:
	// acme <nil>
	// globex <nil>
	// both ran
}
