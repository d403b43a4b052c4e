package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// All hosts are down when a tick is due. The first host that returns makes up for it. One run
// starts, however many hosts and missed ticks there are.
func ExampleTimer_catchUp() {
	store := memlock.New()
	first := time.Now().Add(50 * time.Millisecond)
	second := first.Add(time.Second)
	runs := make(chan time.Time, 10)
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:     "close-the-books",
			Schedule: schedule.At(first, second),
			CatchUp:  timer.CatchUp{Policy: timer.CatchUpOnce, Window: 12 * time.Hour}, // the default for calendars
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				runs <- run.Tick()
				return nil
			},
		})
		if err != nil {
			panic(err)
		}
		return timers
	}

	stop := start(host())
	fmt.Println("the first ran:", (<-runs).Sub(first).Abs() < time.Millisecond)
	stop()

	<-time.After(time.Until(second)) // no host is running
	stop = start(host(), host(), host())
	fmt.Println("the second ran:", (<-runs).Sub(second).Abs() < time.Millisecond)
	stop()
	fmt.Println("more runs:", len(runs))
	// Output:
	// the first ran: true
	// the second ran: true
	// more runs: 0
}
