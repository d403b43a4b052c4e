package timer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Hooks count the skipped ticks by reason in your own metrics, and alert about failed runs.
func ExampleHooks() {
	skipped, failed := map[timer.Reason]uint64{}, 0 // hooks are called one at a time, so there is no mutex
	timers, err := timer.New(timer.Config{
		Store: memlock.New(),
		Hooks: timer.Hooks{
			TickSkipped: func(s timer.SkipInfo) { skipped[s.Reason] += s.Ticks },
			RunEnded: func(r timer.RunResult) {
				if r.Err != nil {
					failed++
				}
			},
		},
	}, timer.Timer{
		Name:     "report",
		Schedule: schedule.Every(20 * time.Millisecond),
		Run: func(context.Context) error {
			time.Sleep(50 * time.Millisecond) // longer than the interval
			return errors.New("no printer")
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	for timers.Status().Timers[0].Skipped[timer.ReasonHostFull] == 0 {
		time.Sleep(time.Millisecond)
	}
	stop() // Run returns after all events have been delivered
	fmt.Println("ticks were skipped:", skipped[timer.ReasonHostFull] > 0)
	fmt.Println("runs failed:", failed > 0)
	// Output:
	// ticks were skipped: true
	// runs failed: true
}

// A Middleware runs code around each attempt of every run, such as a tracing span.
func ExampleMiddleware() {
	spans := func(next timer.Handler) timer.Handler {
		return func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			fmt.Println("span begins:", run.Timer(), "attempt", run.Attempt())
			err := next(ctx) // the context would carry the span
			fmt.Println("span ends:", err)
			return err
		}
	}
	timers, err := timer.New(timer.Config{Middleware: []timer.Middleware{spans}}, timer.Timer{
		Name:  "report",
		Retry: timer.Retry{MaxAttempts: 2, FirstWait: time.Millisecond},
		Run: func(ctx context.Context) error {
			if run, _ := timer.RunFromContext(ctx); run.Attempt() == 1 {
				return errors.New("no printer")
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	_, err = timers.Trigger(context.Background(), "report", timer.TriggerOptions{})
	fmt.Println(err)
	for {
		if st, _ := timers.Status().Timer("report"); st.Last != nil {
			break // the run has ended
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	// Unordered output:
	// <nil>
	// span begins: report attempt 1
	// span ends: no printer
	// span begins: report attempt 2
	// span ends: <nil>
}
