package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// After Remove no run of the timer starts. Remove waits for the runs in progress.
func ExampleScheduler_Remove() {
	release := make(chan struct{})
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
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

	_, err = timers.Trigger(context.Background(), "sync:acme", timer.TriggerOptions{})
	fmt.Println("triggered:", err)
	close(release)
	fmt.Println("removed:", timers.Remove(context.Background(), "sync:acme"))
	_, err = timers.Trigger(context.Background(), "sync:acme", timer.TriggerOptions{})
	fmt.Println("triggered:", err)
	// Output:
	// triggered: <nil>
	// the run has finished
	// removed: <nil>
	// triggered: timer: no timer of that name: "sync:acme"
}
