package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The prices are fetched every night, and once when the service is first deployed, however many
// hosts there are. A host that restarts does not fetch them again.
func ExampleTimer_runOnStart() {
	store := memlock.New()
	runs := make(chan bool, 10)
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:       "fetch-prices",
			Schedule:   schedule.Daily("03:00", "Europe/Berlin"),
			RunOnStart: timer.RunOnStartOnce,
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				runs <- run.OnStart()
				return nil
			},
		})
		if err != nil {
			panic(err)
		}
		return timers
	}

	stop := start(host(), host(), host())
	fmt.Println("ran because of the start:", <-runs)
	stop()
	stop = start(host())
	stop()
	fmt.Println("more runs:", len(runs))
	// Output:
	// ran because of the start: true
	// more runs: 0
}
