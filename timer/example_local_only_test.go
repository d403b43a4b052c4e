package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A LocalOnly timer runs on every host and never calls the store.
func ExampleTimer_localOnly() {
	store := dlocktest.NewFaulty(memlock.New())
	store.Inject(dlocktest.Error(errors.New("connection refused"))) // any call would fail
	valid, release := make(chan bool), make(chan struct{})
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:      "trim-local-disk",
			LocalOnly: true,
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				valid <- run.Valid()
				<-release
				return nil
			},
		})
		if err != nil {
			panic(err)
		}
		return timers
	}
	a, b := host(), host()
	stop := start(a, b)
	defer stop()

	_, err := a.Trigger(context.Background(), "trim-local-disk", timer.TriggerOptions{})
	fmt.Println("a:", err, <-valid)
	_, err = b.Trigger(context.Background(), "trim-local-disk", timer.TriggerOptions{})
	fmt.Println("b:", err, <-valid) // both run at the same time
	close(release)
	// Output:
	// a: <nil> true
	// b: <nil> true
}
