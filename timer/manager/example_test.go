package manager_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/manager"
)

// A Manager creates a timer from each row of a table and follows the table. In this example one
// tenant is added, one changes and one is deleted.
func ExampleManager() {
	timers, err := timer.New(timer.Config{Store: memlock.New()})
	if err != nil {
		fmt.Println(err)
		return
	}
	type tenant struct {
		id    string
		every time.Duration
	}
	table := []tenant{{"acme", time.Hour}, {"globex", time.Hour}}
	follower, err := manager.New(manager.Config[tenant]{
		Scheduler: timers,
		Rows:      func(context.Context) ([]tenant, error) { return table, nil }, // in your service, a query
		Name:      func(t tenant) string { return "sync:" + t.id },
		Timer: func(t tenant) (timer.Timer, error) {
			return timer.Timer{
				Schedule: schedule.Every(t.every),
				Run:      func(context.Context) error { return nil },
			}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func() {
		fmt.Println("synced:", follower.Sync(context.Background())) // follower.Run does this every minute
		for _, t := range timers.Status().Timers {
			fmt.Println(t.Name, t.Schedule)
		}
	}
	show()
	table = []tenant{{"acme", time.Minute}, {"initech", time.Hour}}
	show()
	// Output:
	// synced: <nil>
	// sync:acme every 1h0m0s
	// sync:globex every 1h0m0s
	// synced: <nil>
	// sync:acme every 1m0s
	// sync:initech every 1h0m0s
}
