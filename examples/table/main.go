// Command table runs the timers in the rows of timers.db, and follows changes of the table: sqlite3
// timers.db "INSERT INTO timers VALUES ('a', '*/5 * * * * *', 'UTC', 'https://a.example')".
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"
	"os/signal"
	"time"

	_ "modernc.org/sqlite" // any other driver works

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/manager"
)

type row struct{ name, cron, zone, url string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "file:timers.db?_pragma=busy_timeout(5000)"); err != nil { // waits for other writers
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	store := sqllock.SQLite(db, sqllock.Options{})
	defer store.Close()
	timers, err := timer.New(timer.Config{Store: store})
	_, errTable := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS timers (name TEXT NOT NULL PRIMARY KEY,
		cron TEXT NOT NULL DEFAULT '', zone TEXT NOT NULL DEFAULT '', url TEXT NOT NULL DEFAULT '')`)
	rows, errRows := manager.New(manager.Config[row]{Scheduler: timers, SyncInterval: time.Second,
		Rows: func(ctx context.Context) (list []row, err error) {
			found, err := db.QueryContext(ctx, "SELECT name, cron, zone, url FROM timers")
			if err != nil {
				return nil, err
			}
			defer found.Close()
			for found.Next() {
				var r row
				err = errors.Join(err, found.Scan(&r.name, &r.cron, &r.zone, &r.url))
				list = append(list, r)
			}
			return list, errors.Join(err, found.Err())
		}, Name: func(r row) string { return r.name },
		Timer: func(r row) (timer.Timer, error) {
			call := func(context.Context) error { log.Println("calling", r.url); return nil }
			return timer.Timer{Schedule: schedule.Cron(r.cron, r.zone), Run: call}, nil
		},
	})
	if err := errors.Join(err, errTable, errRows, store.Migrate(ctx)); err != nil {
		return err
	}
	go rows.Run(ctx)
	return timers.Run(ctx)
}
