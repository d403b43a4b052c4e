package control_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer/control"
)

// A program that runs no timers, such as a script for the on-call engineer, pauses a timer in the
// whole fleet. It needs only the store of the fleet.
func Example() {
	ctx, store := context.Background(), memlock.New() // in production redislock or sqllock
	c := control.New(control.Config{Store: store})
	ann := driver.Cause{By: "ann", Note: "the database is being moved"}

	if err := c.Pause(ctx, "nightly-report", time.Now().Add(time.Hour), ann); err != nil {
		fmt.Println(err)
		return
	}
	state, err := c.Inspect(ctx, "nightly-report")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("paused by %s: %s\n", state.Pause.By, state.Pause.Note)
	// Output:
	// paused by ann: the database is being moved
}
