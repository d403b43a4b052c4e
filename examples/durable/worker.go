package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // any other SQLite driver works

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/schedule"
)

// work runs a worker until ctx ends.
func work(ctx context.Context, path, name string) error {
	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	store, calls := durable.SQLite(db, durable.Options{}), calls{db}
	if err := errors.Join(store.Migrate(ctx), calls.migrate(ctx)); err != nil {
		return err
	}
	worker, err := durable.NewWorker(store, durable.Config{
		Name:    name,
		MaxRuns: 1,
		// The defaults are 30 s, 5 s and 5 s. Short values make the demonstration quick.
		TTL: 3 * time.Second, PollInterval: time.Second, CallTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	worker.Handle("invoice", calls.wrap(busy(200*time.Millisecond)), durable.HandlerOptions{})
	worker.Handle("month-end", calls.wrap(busy(3*time.Second)), durable.HandlerOptions{MaxConcurrency: 1})
	worker.Schedule("invoices", "invoice", schedule.Every(time.Second), durable.ScheduleOptions{
		CatchUp: durable.CatchUp{Policy: durable.CatchUpBackfill}, // a run for each tick, including missed ones
	})
	return worker.Run(ctx)
}

// busy returns a handler that takes some time.
func busy(takes time.Duration) durable.Handler {
	return func(ctx context.Context, _ *durable.Run) error {
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done(): // the lease was lost, or the worker is stopping
			return context.Cause(ctx)
		}
	}
}

// open returns a database without opening the file.
func open(path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(4) // enough: SQLite writes one transaction at a time
	}
	return db, err
}
