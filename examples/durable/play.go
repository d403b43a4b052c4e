package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
)

// A report is the output of -json, computed from the handlers' records.
type report struct {
	Workers   int   `json:"workers"`
	Ticks     int   `json:"ticks"`              // seconds from the first invoice to the last
	Runs      int   `json:"runs"`               // completed by a handler
	Lost      int   `json:"lost"`               // ticks and triggers that no handler completed
	Doubled   int   `json:"doubled"`            // completed twice
	Reclaimed int   `json:"reclaimed"`          // completed by a second attempt
	After     int64 `json:"reclaimed_after_ms"` // from the kill to the start of the next attempt
}

var operator = driver.Cause{By: "play", Note: "the end"}

// play starts three workers, kills one during a run, and counts the calls of handlers. When it
// returns, no process and no file is left.
func play(ctx context.Context, asJSON bool) (err error) {
	folder, err := os.MkdirTemp("", "tickslot-durable-")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, "work.db")
	ctx, end := context.WithTimeoutCause(ctx, 40*time.Second, errors.New("the play takes too long"))
	workers := map[string]*exec.Cmd{}
	defer func() {
		end()
		for _, w := range workers {
			_ = w.Wait() // reaps workers that ended, and the killed one
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}()

	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	store, calls := durable.SQLite(db, durable.Options{}), calls{db}
	if err := errors.Join(store.Migrate(ctx), calls.migrate(ctx)); err != nil {
		return err
	}
	for _, name := range []string{"ann", "ben", "cleo"} {
		if workers[name], err = start(ctx, path, name); err != nil {
			return err
		}
	}
	began := time.Now()
	tell := func(format string, args ...any) {
		fmt.Printf("%5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}

	tell("three workers make an invoice each second")
	if err := calls.await(ctx, "SELECT count(*) >= 3 FROM calls WHERE ended"); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil) // the application's transaction: the run exists if it commits
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := store.Trigger(ctx, durable.SQLTx(tx), "month-end", nil, durable.TriggerOptions{}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	const attempt = "SELECT count(*) = 1 FROM calls WHERE handler = 'month-end' AND attempt = ?"
	if err := calls.await(ctx, attempt, 1); err != nil {
		return err
	}
	victim, err := calls.worker(ctx, 1)
	if err != nil {
		return err
	}
	if err := workers[victim].Process.Kill(); err != nil {
		return err
	}
	killed := time.Now()
	tell("%s runs month-end: kill -9 %d", victim, workers[victim].Process.Pid)
	if err := calls.await(ctx, attempt, 2); err != nil {
		return err
	}
	after := time.Since(killed)
	heir, err := calls.worker(ctx, 2)
	if err != nil {
		return err
	}
	tell("%s runs it again, %d ms after the kill", heir, after.Milliseconds())
	if err := calls.await(ctx, "SELECT count(*) = 1 FROM calls WHERE handler = 'month-end' AND ended"); err != nil {
		return err
	}
	tell("it is done")

	control := store.Control()
	if err := control.PauseSchedule(ctx, "invoices", time.Now().Add(time.Hour), operator); err != nil {
		return err
	}
	open := durable.RunFilter{States: []durable.State{durable.StateQueued, durable.StateRunning}}
	if err := await(ctx, func() (bool, error) {
		open, err := store.Runs(ctx, open, 1)
		return len(open) == 0, err
	}); err != nil {
		return err
	}
	r := report{Workers: len(workers), After: after.Milliseconds()}
	if err := calls.count(ctx, &r); err != nil {
		return err
	}
	tell("%d ticks and a trigger: %d runs, %d lost, %d doubled, %d reclaimed", r.Ticks, r.Runs, r.Lost, r.Doubled,
		r.Reclaimed)
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return nil
}

// start starts this program as a worker. The worker ends with ctx, or when this process ends, which
// closes the worker's standard input.
func start(ctx context.Context, path, name string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := exec.CommandContext(ctx, self, "-played", "-db", path, "-name", name)
	w.Stderr = os.Stderr
	in, err := w.StdinPipe()
	if err != nil {
		return nil, err
	}
	w.Cancel = in.Close            // stops the worker cleanly
	w.WaitDelay = 10 * time.Second // then kills it
	return w, w.Start()
}

// await calls done until it returns true.
func await(ctx context.Context, done func() (bool, error)) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		yes, err := done()
		if yes && err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
