package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/timer"
)

// Run blocks, so this example calls it in its own goroutine. Trigger is refused until Run has
// begun.
func ExampleScheduler_Running() {
	timers, err := timer.New(timer.Config{}, timer.Timer{
		Name: "import",
		Run:  func(context.Context) error { fmt.Println("importing"); return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- timers.Run(ctx) }()

	<-timers.Running()
	_, err = timers.Trigger(ctx, "import", timer.TriggerOptions{})
	fmt.Println(err)

	stop()
	fmt.Println(<-done)
	// Unordered output:
	// <nil>
	// importing
	// <nil>
}

// In the unit test of a handler, the context carries the run.
func ExampleContextWithRun() {
	report := func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		fmt.Println("since", run.PreviousTick().Format(time.TimeOnly), "until", run.Tick().Format(time.TimeOnly))
		fmt.Println("attempt", run.Attempt(), "with fence", run.Fence())
		return nil
	}

	tick := time.Date(2026, time.July, 1, 2, 0, 0, 0, time.UTC)
	ctx := timer.ContextWithRun(context.Background(), timer.RunSpec{
		Timer: "report", Tick: tick, PreviousTick: tick.Add(-time.Hour), Fence: 17, Attempt: 2,
	})
	fmt.Println(report(ctx))
	// Output:
	// since 01:00:00 until 02:00:00
	// attempt 2 with fence 17
	// <nil>
}
