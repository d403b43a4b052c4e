package timer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A hundred tenants are due at the same time. This host runs ten at a time, and the others wait in
// line.
func ExampleConfig_maxRuns() {
	var running, most, done atomic.Int32
	at := time.Now().Add(100 * time.Millisecond)
	var tenants []timer.Timer
	for i := range 100 {
		tenants = append(tenants, timer.Timer{
			Name:     fmt.Sprintf("report:tenant-%d", i),
			Schedule: schedule.At(at),
			Run: func(context.Context) error {
				now := running.Add(1)
				for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
				done.Add(1)
				return nil
			},
		})
	}
	timers, err := timer.New(timer.Config{MaxRuns: 10}, tenants...)
	if err != nil {
		panic(err)
	}
	stop := start(timers)
	defer stop()
	for done.Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(done.Load(), "done, at most", most.Load(), "at once")
	// Output: 100 done, at most 10 at once
}
