package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// Status is a snapshot of what this host knows, for example for a page or a test. It does not call
// the store.
func ExampleScheduler_Status() {
	started, release := make(chan struct{}), make(chan struct{})
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name:           "process-orders",
		MaxConcurrency: 3,
		Run: func(context.Context) error {
			close(started)
			<-release
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	_, err = timers.Trigger(context.Background(), "process-orders", timer.TriggerOptions{})
	fmt.Println("triggered:", err)
	<-started

	status := timers.Status()
	fmt.Println(status.Phase, "with store", status.Store.Name, "up:", status.Store.Up)
	orders, _ := status.Timer("process-orders")
	for _, run := range orders.Running {
		fmt.Println("slot", run.Slot, "of", orders.MaxConcurrency, "valid:", run.Valid)
	}

	close(release)
	stop()
	orders, _ = timers.Status().Timer("process-orders")
	fmt.Println("running:", len(orders.Running), "last:", orders.Last.Outcome)
	// Output:
	// triggered: <nil>
	// running with store memory up: true
	// slot 0 of 3 valid: true
	// running: 0 last: ok
}
