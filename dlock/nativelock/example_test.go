package nativelock_test

import (
	"context"
	"database/sql"
	"log"
	"time"

	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Timers run on advisory locks without any table in the database. Each timer needs MaxPerTick:
// timer.NoLimit.
func ExamplePostgresAdvisory() {
	// This is the server itself or a pooler with pool_mode=session.
	db, err := sql.Open("pgx", "postgres://app@db.example.org/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := nativelock.PostgresAdvisory(db, nativelock.Options{Prefix: "shop:"})
	defer store.Close()
	timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
		Name:           "process-orders",
		Schedule:       schedule.Every(time.Minute),
		MaxConcurrency: 3,
		MaxPerTick:     timer.NoLimit,
		Run:            func(ctx context.Context) error { return nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(timers.Run(context.Background()))
}

// One host at a time closes the books. The others find the lock taken and skip the work.
func ExampleTryXactLock() {
	closeBooks := func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		mine, err := nativelock.TryXactLock(ctx, tx, "close-books")
		if err != nil || !mine {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE books SET closed = true WHERE year < 2026"); err != nil {
			return err
		}
		return tx.Commit() // also releases the lock
	}
	_ = closeBooks
}
