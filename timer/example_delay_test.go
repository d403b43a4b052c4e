package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Timers that are due at the same instant start within Delay.ByTimer of it. The delay of each timer
// is computed from its name, so it is the same on every host and after every restart.
func ExampleTimer_delayByTimer() {
	order := make(chan string, 10)
	due := schedule.At(time.Now().Add(50 * time.Millisecond))
	nightly := func(name string) timer.Timer {
		return timer.Timer{
			Name:     name,
			Schedule: due,
			Delay:    timer.Delay{ByTimer: time.Second},
			Run: func(context.Context) error {
				order <- name
				return nil
			},
		}
	}
	timers, err := timer.New(timer.Config{}, nightly("backup"), nightly("clean-up"), nightly("send-digest"))
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()
	for range 3 {
		fmt.Println(<-order)
	}
	// Output:
	// send-digest
	// clean-up
	// backup
}

// If every host does some work for itself, the hosts need not all start at the same time.
// Delay.ByHost gives each host its own delay.
func ExampleTimer_delayByHost() {
	order := make(chan string, 10)
	due := schedule.At(time.Now().Add(50 * time.Millisecond))
	host := func(name string) *timer.Scheduler {
		timers, err := timer.New(timer.Config{Holder: dlock.Holder{Host: name, PID: 1, ID: "x"}}, timer.Timer{
			Name:           "warm-cache",
			Schedule:       due,
			MaxConcurrency: timer.NoLimit,
			MaxPerTick:     timer.NoLimit,
			Delay:          timer.Delay{ByHost: time.Second},
			Run: func(context.Context) error {
				order <- name
				return nil
			},
		})
		if err != nil {
			panic(err)
		}
		return timers
	}
	stop := start(host("web-1"), host("web-2"), host("web-3"))
	defer stop()
	for range 3 {
		fmt.Println(<-order)
	}
	// Output:
	// web-1
	// web-2
	// web-3
}
