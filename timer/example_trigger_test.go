package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer"
)

// A run gets a payload, and the caller that triggered the run waits for its result.
func ExampleHandle_Wait() {
	timers, err := timer.New(timer.Config{}, timer.Timer{
		Name: "rebuild-index",
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			index := string(run.Payload())
			if index == "" {
				return errors.New("no index is named")
			}
			by, _ := run.TriggeredBy()
			run.SetResult(fmt.Sprintf("%s was rebuilt for %s", index, by.By))
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()
	ctx := context.Background() // in an HTTP handler, use r.Context()

	run, err := timers.Trigger(ctx, "rebuild-index", timer.TriggerOptions{
		Payload: []byte("orders"), By: driver.Cause{By: "ann"},
	})
	if err != nil { // nothing was started; errors.As finds a *timer.RefusedError
		fmt.Println(err)
		return
	}
	fmt.Println(run.Wait(ctx))

	run, err = timers.Trigger(ctx, "rebuild-index", timer.TriggerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = run.Wait(ctx)
	if failed, ok := errors.AsType[*timer.OutcomeError](err); ok {
		fmt.Println(failed.Outcome, failed.Err)
	}
	// Output:
	// orders was rebuilt for ann <nil>
	// error no index is named
}
