// Command sqlite is a small program with one timer. Start it several times on one machine, in
// several terminals:
//
//	go build -o /tmp/timers ./examples/sqlite
//	/tmp/timers -db /tmp/locks.db
//
// There is no server. The copies share the file, and together never run more than two
// "resize-images" at once. Things to try:
//
//   - Start three copies. Each line shows a copy, its run, and which of the two slots it has. One
//     copy always waits.
//   - kill -9 a copy during a run: another copy can take its slot within 15 seconds, the length of
//     a lease (-ttl). After kill without -9, or Ctrl-C, the copy first finishes its run, and the
//     slot is free immediately.
//   - kill -STOP a copy, wait for half a minute, and kill -CONT it: another copy has taken its slot
//     meanwhile, and the context of its run ends as soon as it resumes.
//   - sqlite3 /tmp/locks.db 'SELECT * FROM distributed_locks' shows the current or last holder of
//     each slot.
//
// The file must be on a local disk; see sqllock.SQLite for what is not promised. In containers,
// mount its folder (docker run -v /srv/locks:/data), never the file itself, which is refused.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // any other SQLite driver works

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

var output = slog.New(slog.NewTextHandler(os.Stdout, nil)).With("pid", os.Getpid())

func main() {
	path := flag.String("db", "", "the `FILE` that all copies share; it is created if it does not exist")
	every := flag.Duration("every", 2*time.Second, "how often the timer is due")
	work := flag.Duration("work", 3*time.Second, "how long a run takes")
	ttl := flag.Duration("ttl", 15*time.Second, "how long the slot of a copy that was killed stays taken; at least 3s")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets the run finish; the second does not wait
	if err := run(ctx, *path, *every, *work, *ttl); err != nil {
		fmt.Fprintln(os.Stderr, "sqlite:", err)
		os.Exit(1)
	}
}

// run runs the timer until ctx ends and the last run has finished.
func run(ctx context.Context, path string, every, work, ttl time.Duration) error {
	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	store := sqllock.SQLite(db, sqllock.Options{})
	defer store.Close()
	if err := store.Migrate(ctx); err != nil { // creates the table, once
		return fmt.Errorf("%s: %w", path, err)
	}

	timers, err := timer.New(timer.Config{Store: store, TTL: ttl}, timer.Timer{
		Name:           "resize-images",
		Schedule:       schedule.Every(every),
		MaxConcurrency: 2, // concurrent runs in all copies together
		MaxPerTick:     2, // up to 2 copies run each tick
		MaxPerHost:     1, // so that one copy does not take both slots
		MaxRunTime:     time.Minute,
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			report("starts", run)
			select {
			case <-time.After(work):
				report("ends", run)
				return nil
			case <-ctx.Done(): // the lease is lost, or the run or the drain took too long
				report("stops", run)
				return context.Cause(ctx)
			}
		},
	})
	if err != nil {
		return err
	}
	output.Info("running")
	return timers.Run(ctx) // drains when ctx ends
}

// open returns a database without opening the file. synchronous=normal is faster than full and as
// safe for leases: if the machine crashes, so do all their holders. A tick that was claimed just
// before may start again.
func open(path string) (*sql.DB, error) {
	if path == "" {
		return nil, errors.New("-db FILE is required: the file that all copies share")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4) // enough: SQLite writes one transaction at a time
	return db, nil
}

func report(what string, run *timer.Run) {
	output.Info(run.Timer()+" "+what, "slot", run.Slot(), "fence", run.Fence())
}
