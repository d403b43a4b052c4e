package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// Update replaces a timer without waiting for its runs: they finish what they began, and what
// starts later has the new settings.
func ExampleScheduler_Update() {
	release, ended := make(chan struct{}), make(chan struct{})
	timers, err := timer.New(timer.Config{Lock: memlock.New()}, timer.Timer{
		Name: "sync:acme",
		Run: func(context.Context) error {
			<-release
			fmt.Println("synced from the old address")
			close(ended)
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
	again := make(chan struct{})
	fmt.Println("updated:", timers.Update(timer.Timer{
		Name:           "sync:acme",
		MaxConcurrency: 2,
		Run: func(context.Context) error {
			fmt.Println("synced from the new address")
			close(again)
			return nil
		},
	}))
	_, err = timers.Trigger(context.Background(), "sync:acme", timer.TriggerOptions{})
	fmt.Println("triggered:", err)
	<-again
	close(release)
	<-ended
	// Output:
	// triggered: <nil>
	// updated: <nil>
	// triggered: <nil>
	// synced from the new address
	// synced from the old address
}
