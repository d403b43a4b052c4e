package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/timer"
)

// Hosts agree on every instant without a word, because it follows from the period and the timer's name. Timers with the
// same period are spread, so that they are not all due at once.
func ExampleEvery() {
	next := func(name string) time.Time {
		timers, err := timer.New(timer.Config{}, timer.Timer{
			Name:     name,
			Schedule: timer.Every(24 * time.Hour),
			Run:      func(context.Context) error { return nil },
		})
		if err != nil {
			panic(err)
		}
		t, _ := timers.Status().Timer(name)
		return t.Next
	}
	fmt.Println("two hosts:", next("rotate-logs").Equal(next("rotate-logs")))
	fmt.Println("two timers:", next("rotate-logs").Equal(next("send-digest")))
	// Output:
	// two hosts: true
	// two timers: false
}
