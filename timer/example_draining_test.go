package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// When the context of Run ends, Run starts no more runs, waits for the handlers, releases the slots
// and returns. The handlers' own contexts end only if they take longer than DrainTimeout.
func ExampleScheduler_Run() {
	ctx, stop := context.WithCancel(context.Background()) // in main, use signal.NotifyContext
	defer stop()

	finished := false
	timers, err := timer.New(timer.Config{Store: memlock.New(), DrainTimeout: 20 * time.Second}, timer.Timer{
		Name:     "process-orders",
		Schedule: schedule.Every(20 * time.Millisecond),
		Run: func(ctx context.Context) error {
			stop()                            // as if SIGTERM arrived now
			time.Sleep(10 * time.Millisecond) // the rest of the work
			finished = ctx.Err() == nil
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = timers.Run(ctx)
	fmt.Println("finished undisturbed:", finished)
	fmt.Println("Run returned:", err)
	// Output:
	// finished undisturbed: true
	// Run returned: <nil>
}
