package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// Remove lets nothing more start, and waits for the runs that go on.
func ExampleScheduler_Remove() {
	release := make(chan struct{})
	timers, err := timer.New(timer.Config{Lock: memlock.New()}, timer.Timer{
		Name: "sync:acme",
		Run: func(context.Context) error {
			<-release
			fmt.Println("the run has finished")
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()

	fmt.Println("triggered:", timers.Trigger(context.Background(), "sync:acme"))
	close(release)
	fmt.Println("removed:", timers.Remove(context.Background(), "sync:acme"))
	fmt.Println("triggered:", timers.Trigger(context.Background(), "sync:acme"))
	// Output:
	// triggered: <nil>
	// the run has finished
	// removed: <nil>
	// triggered: timer: no timer of that name: "sync:acme"
}
