package pgxlock_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The pool belongs to the application. The store opens a small pool with the same settings.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store := pgxlock.New(pool, sqllock.Options{Prefix: "shop:"})
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
		Name:           "process-orders",
		Schedule:       schedule.Every(time.Minute),
		MaxConcurrency: 3, // concurrent runs in the fleet
		MaxPerTick:     1, // starts of each tick in the fleet
		Run:            func(ctx context.Context) error { return nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(timers.Run(ctx))
}
