package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// Update replaces a timer without waiting for its runs. They finish with the old settings, and runs
// that start later use the new settings.
func ExampleScheduler_Update() {
	release := make(chan struct{})
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name: "sync:acme",
		Run: func(ctx context.Context) error {
			<-release
			run, _ := timer.RunFromContext(ctx)
			run.SetResult("synced from the old address")
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()

	trigger := func() *timer.Handle {
		run, err := timers.Trigger(context.Background(), "sync:acme", timer.TriggerOptions{})
		fmt.Println("triggered:", err)
		return run
	}
	before := trigger()
	fmt.Println("updated:", timers.Update(timer.Timer{
		Name:           "sync:acme",
		MaxConcurrency: 2,
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			run.SetResult("synced from the new address")
			return nil
		},
	}))
	fmt.Println(trigger().Wait(context.Background()))
	close(release)
	fmt.Println(before.Wait(context.Background()))
	// Output:
	// triggered: <nil>
	// updated: <nil>
	// triggered: <nil>
	// synced from the new address <nil>
	// synced from the old address <nil>
}
