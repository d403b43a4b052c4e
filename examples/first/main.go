package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name:           "process-orders",
		Schedule:       schedule.Every(time.Second),
		MaxConcurrency: 3, // runs at once in the fleet
		MaxPerTick:     1, // each tick runs once in the fleet
		Run: func(ctx context.Context) error {
			log.Println("processing")
			return nil
		},
	})
	if err != nil {
		log.Fatal(err) // every fault, and how to fix it
	}
	if err := timers.Run(ctx); err != nil { // drains and releases when ctx ends
		log.Fatal(err)
	}
}
