package timer_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A timer that is each host's own affair runs on all of them, and never asks the store.
func ExampleTimer_localOnly() {
	store := dlocktest.NewFaulty(memlock.New()) // it counts
	release := make(chan struct{})
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Lock: store}, timer.Timer{
			Name:      "trim-local-disk",
			LocalOnly: true,
			Run:       func(context.Context) error { <-release; return nil },
		})
		if err != nil {
			panic(err)
		}
		return timers
	}
	a, b := host(), host()
	stop := start(a, b)
	defer stop()

	fmt.Println("a:", a.Trigger(context.Background(), "trim-local-disk"))
	fmt.Println("b:", b.Trigger(context.Background(), "trim-local-disk")) // at the same time
	fmt.Println("calls to the store:", store.Calls(dlocktest.Acquire))
	close(release)
	// Output:
	// a: <nil>
	// b: <nil>
	// calls to the store: 0
}
