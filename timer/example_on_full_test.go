package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A run takes longer than the 20 ms between two ticks. When it ends, the latest due tick starts
// immediately. The timer does not wait for another tick.
func ExampleTimer_onFull() {
	ticks, finish := make(chan time.Time, 1000), make(chan struct{})
	timers, err := timer.New(timer.Config{}, timer.Timer{
		Name:     "sync",
		Schedule: schedule.Every(20 * time.Millisecond),
		OnFull:   timer.FullWait,
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			ticks <- run.Tick()
			<-finish
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	stop := start(timers)
	<-ticks
	var waits time.Time
	for waits.IsZero() {
		time.Sleep(time.Millisecond)
		sync, _ := timers.Status().Timer("sync")
		waits = sync.WaitingTick
	}
	finish <- struct{}{}
	next := <-ticks
	fmt.Println("the next run is of a tick that waited:", !next.Before(waits))
	close(finish)
	stop()
	// Output: the next run is of a tick that waited: true
}
