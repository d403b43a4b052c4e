// Command single is a single-process service with timers that could have been a crontab. It has no
// store, so it needs no server:
//
//	go run ./examples/single
//
// Ctrl-C lets runs finish, then prints what each timer has done. To share the timers with other
// processes, give timer.Config a Store: see the examples redis and postgres.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	timers, err := timer.New(timer.Config{}, crontab()...)
	if err != nil {
		log.Fatal(err) // every fault of every timer, and how to fix it
	}
	if err := timers.Run(ctx); err != nil {
		log.Fatal(err)
	}
	for _, t := range timers.Status().Timers {
		fmt.Printf("%-10s ticks %d, started %d, skipped %v\n", t.Name, t.Ticks, t.Started, t.Skipped)
	}
}

func crontab() []timer.Timer {
	return []timer.Timer{
		{Name: "heartbeat", Schedule: schedule.Every(time.Second), Run: nothing},
		// Local is this host's zone, as in a crontab. Hosts that share a timer must name the zone.
		{Name: "nightly", Schedule: schedule.Cron("30 2 * * *", "Local"), Run: nothing},
		// An error or panic is logged, and the next tick runs as usual.
		{Name: "fails", Schedule: schedule.Every(2 * time.Second), Run: fail},
		{Name: "panics", Schedule: schedule.Every(3 * time.Second), Run: crash},
		// Runs do not overlap, so ticks that come due during a run are skipped.
		{Name: "slow", Schedule: schedule.Every(time.Second), Run: sleep},
	}
}

func nothing(context.Context) error { return nil }

func fail(context.Context) error { return errors.New("smtp: 550 no such user") }

func crash(context.Context) error { panic("a bug") }

func sleep(ctx context.Context) error {
	select {
	case <-time.After(2500 * time.Millisecond):
		return nil
	case <-ctx.Done(): // the drain took too long
		return context.Cause(ctx)
	}
}
