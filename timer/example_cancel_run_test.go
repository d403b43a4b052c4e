package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A run is canceled by its ID. Status, the log and the handler show the ID. Control.CancelRun
// cancels a run on another host.
func ExampleScheduler_CancelRun() {
	ended := make(chan struct{})
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name: "import",
		Run: func(ctx context.Context) error {
			defer close(ended)
			<-ctx.Done()
			cause := context.Cause(ctx)
			fmt.Println(cause, errors.Is(cause, timer.ErrCanceled))
			return cause
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	_, err = timers.Trigger(context.Background(), "import", timer.TriggerOptions{})
	fmt.Println("triggered:", err)

	imports, _ := timers.Status().Timer("import")
	err = timers.CancelRun("import", imports.Running[0].ID, driver.Cause{By: "ann", Note: "the wrong file"})
	<-ended
	fmt.Println("canceled:", err)
	stop()
	imports, _ = timers.Status().Timer("import")
	fmt.Println("outcome:", imports.Last.Outcome)
	// Output:
	// triggered: <nil>
	// timer: the run was canceled by ann: the wrong file true
	// canceled: <nil>
	// outcome: canceled
}
