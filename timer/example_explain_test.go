package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Explain says that a tick did not run on this host because another host ran it.
func ExampleScheduler_Explain() {
	store := memlock.New()
	due := time.Now().Add(100 * time.Millisecond)
	host := func(name string) *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store, Holder: dlock.Holder{Host: name, PID: 1, ID: "x"}},
			timer.Timer{
				Name:     "nightly-report",
				Schedule: schedule.At(due),
				Run:      func(context.Context) error { return nil },
			})
		if err != nil {
			panic(err)
		}
		return timers
	}
	web1, web2 := host("web-1"), host("web-2")
	stop := start(web1, web2)
	defer stop()

	ctx := context.Background()
	where := map[bool]int{}
	for _, timers := range []*timer.Scheduler{web1, web2} {
		for {
			why, err := timers.Explain(ctx, "nightly-report", due)
			if err != nil {
				fmt.Println(err)
				return
			}
			if why.Known && (why.Reason != "" || why.Run != nil) { // the host has decided about the tick
				where[why.Reason == ""]++
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Println("ran on", where[true], "host, taken on", where[false])

	why, _ := web1.Explain(ctx, "nightly-report", due.Add(time.Hour).Truncate(time.Hour))
	fmt.Println(why.Text[len(why.Text)-len("not a tick of its schedule"):])
	// Output:
	// ran on 1 host, taken on 1
	// not a tick of its schedule
}
