// Command postgres is one host of a fleet that shares a timer through a Postgres table. Start it
// several times:
//
//	export DATABASE_URL=postgres://user:password@localhost:5432/database
//	go run ./examples/postgres
//
// Each tick of "report" runs in one of the copies. The first copy creates the table,
// distributed_locks. If its user lacks that right, run the SQL in docs/sql.md instead of Migrate.
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stdout, nil))) // with milliseconds
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil { // err may quote the password
		log.Fatal("set DATABASE_URL to something like postgres://user:password@localhost:5432/database")
	}
	lock := pgxlock.New(pool, sqllock.Options{})
	if err := lock.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	timers, err := timer.New(timer.Config{Store: lock}, timer.Timer{
		Name:     "report",
		Schedule: schedule.Every(500 * time.Millisecond),
		Run:      report,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = timers.Run(ctx) // returns when the last run has finished and released its slot
	lock.Close()
	pool.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func report(ctx context.Context) error {
	run, _ := timer.RunFromContext(ctx)
	slog.Info("report starts", "tick", run.Tick(), "slot", run.Slot(), "fence", run.Fence())
	defer slog.Info("report ends", "tick", run.Tick(), "slot", run.Slot(), "fence", run.Fence())
	return ctx.Err() // simulated work
}
