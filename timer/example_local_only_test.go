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
	ran := make(chan string)
	host := func(name string) *timer.Scheduler {
		timers, err := timer.New(timer.Config{Lock: store}, timer.Timer{
			Name:      "trim-local-disk",
			LocalOnly: true,
			Run:       func(context.Context) error { ran <- name; return nil },
		})
		if err != nil {
			panic(err)
		}
		return timers
	}
	a, b := host("a"), host("b")
	stop := start(a, b)
	defer stop()

	fmt.Println(a.Trigger(context.Background(), "trim-local-disk"), b.Trigger(context.Background(), "trim-local-disk")) // at once
	first, second := <-ran, <-ran
	fmt.Println("both ran:", first != second)
	fmt.Println("calls to the store:", store.Calls(dlocktest.Acquire))
	// Output:
	// <nil> <nil>
	// both ran: true
	// calls to the store: 0
}
