package timer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Two hosts share a store. The timer is due every 20 ms, and each tick starts one run in the fleet.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memlock.New() // on several machines, use redislock.New(rdb, redislock.Options{})

	ticks := make(chan time.Time, 100)
	done := make(chan error, 2)
	for range 2 {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:     "process-orders",
			Schedule: schedule.Every(20 * time.Millisecond),
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				ticks <- run.Tick()
				return nil
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		go func() { done <- timers.Run(ctx) }()
	}

	seen := map[time.Time]int{}
	for range 5 {
		seen[<-ticks]++
	}
	stop()
	<-done
	<-done
	fmt.Println(len(seen), "ticks, 5 runs")
	// Output: 5 ticks, 5 runs
}

// Before each step that must not happen twice, the handler checks whether its slot is still valid.
// It passes the fence to the resource that it writes to.
func ExampleRunFromContext() {
	done := make(chan string, 1)
	charge := func(fence dlock.Fence) {} // must refuse a fence lower than the highest it has seen for the slot

	handler := func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		for range 3 {
			if !run.Valid() {
				return context.Cause(ctx)
			}
			charge(run.Fence())
		}
		done <- fmt.Sprintf("%s: slot %d", run.Timer(), run.Slot())
		return nil
	}

	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{Name: "charge-cards", MaxConcurrency: 3,
		Run: handler})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()
	_, err = timers.Trigger(context.Background(), "charge-cards", timer.TriggerOptions{})
	fmt.Println(err)
	fmt.Println(<-done)
	// Output:
	// <nil>
	// charge-cards: slot 0
}

// Trigger runs a timer immediately, within its limits.
func ExampleScheduler_Trigger() {
	release := make(chan struct{})
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name: "rebuild-index", // no Schedule: the timer runs only when triggered
		Run:  func(context.Context) error { <-release; return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()
	_, err = timers.Trigger(context.Background(), "rebuild-index", timer.TriggerOptions{})
	fmt.Println(err)
	_, err = timers.Trigger(context.Background(), "rebuild-index", timer.TriggerOptions{})
	if refused, ok := errors.AsType[*timer.RefusedError](err); ok {
		fmt.Println("refused:", refused.Reason)
	}
	close(release)
	// Output:
	// <nil>
	// refused: host_full
}

// New returns all faults together, each with how to fix it.
func ExampleNew_faults() {
	_, err := timer.New(timer.Config{},
		timer.Timer{Name: "a", MaxConcurrency: -2, Run: func(context.Context) error { return nil }},
		timer.Timer{Name: "b", Schedule: schedule.Every(0)},
	)
	fmt.Println(err)
	// Output:
	// timer "a": MaxConcurrency: -2 is negative: use 1 to 10000, 0 for the default, or timer.NoLimit
	// timer "b": Run: it is nil: set the function that does the work
	// timer "b": Schedule: Every(0s): the period must be at least 1ms
}

// start runs each host's timers, as its main function would, and returns once they are running.
// stop drains all hosts.
func start(hosts ...*timer.Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, timers := range hosts {
		running.Go(func() {
			if err := timers.Run(ctx); err != nil {
				fmt.Println(err)
			}
		})
		<-timers.Running()
	}
	return func() { cancel(); running.Wait() }
}
