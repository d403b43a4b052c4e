//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

const (
	tableOfRuns     = durable.DefaultTableName + "_runs"
	tableOfAttempts = durable.DefaultTableName + "_attempts"
)

// A watch reads the database through a connection without faults.
type watch struct {
	door    *nemesis.Door
	bounced *nemesis.Door // through PgBouncer, with a separate pool, or nil
	log     *torture.Log

	expired map[[2]int64]*torture.Line // by run and attempt
}

// micros returns an SQL expression for an instant in microseconds.
func (w *watch) micros(column string) string {
	switch {
	case w.door.Pool == nil && column == "now":
		return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
	case w.door.Pool == nil:
		return column
	case column == "now":
		column = "clock_timestamp()"
	}
	return "(extract(epoch FROM " + column + ") * 1000000)::bigint"
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context, all *sync.WaitGroup) {
	w.expired = map[[2]int64]*torture.Line{}
	if w.bounced != nil {
		all.Go(func() {
			nemesis.Each(ctx, func(ctx context.Context) { nemesis.LookThrough(ctx, w.bounced, w.log) })
		})
	}
	all.Go(func() {
		nemesis.Each(ctx, w.look)
		for _, l := range w.expired { // still there
			w.log.Write(*l)
		}
	})
}

// look reads the current runs and expired leases.
func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l := torture.Line{Kind: torture.Looked, First: nemesis.Mono(), Running: map[string]int{}}
	seen := map[[2]int64]bool{}
	rows, err := w.door.DB.QueryContext(ctx, "SELECT id, attempt, handler, "+w.micros("lease_until")+" - "+
		w.micros("now")+" FROM "+tableOfRuns+" WHERE state = 'running'")
	if err == nil {
		for rows.Next() && err == nil {
			var id, attempt, left int64
			var handler string
			err = rows.Scan(&id, &attempt, &handler, &left)
			l.Running[handler]++
			if left >= 0 {
				continue
			}
			now, k := nemesis.Mono(), [2]int64{id, attempt}
			if seen[k] = true; w.expired[k] == nil {
				w.expired[k] = &torture.Line{Kind: torture.Expired, First: now + left*1000,
					Work: &torture.Work{ID: id, Attempt: int(attempt), Handler: handler}}
			}
			w.expired[k].Last = now
		}
		err = errors.Join(err, rows.Err(), rows.Close())
	}
	l.Last = nemesis.Mono()
	if err != nil {
		l.Failed, l.Running = true, nil
		w.log.Write(l)
		return
	}
	w.log.Write(l)
	for k, line := range w.expired {
		if !seen[k] { // it was reclaimed, or its worker has renewed or finished it
			w.log.Write(*line)
			delete(w.expired, k)
		}
	}
}

// ticks logs the database's counts of ticks.
func (w *watch) ticks(ctx context.Context) error {
	rows, err := w.door.DB.QueryContext(ctx, "SELECT name, ticks_queued, ticks_coalesced + ticks_skipped + "+
		"ticks_paused, "+w.micros("next_due_at")+", "+w.micros("now")+" FROM "+durable.DefaultTableName+
		"_schedules WHERE next_due_at IS NOT NULL")
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var s torture.Work
		if err := rows.Scan(&s.Schedule, &s.Queued, &s.Passed, &s.Next, &s.Now); err != nil {
			return err
		}
		for _, c := range cadences {
			if c.name == s.Schedule {
				n++
				s.Period = c.period.Microseconds()
			}
		}
		w.log.Write(torture.Line{Kind: torture.Ticks, Work: &s})
	}
	if n != len(cadences) {
		err = fmt.Errorf("%d of %d schedules have a tick", n, len(cadences))
	}
	return errors.Join(err, rows.Err())
}

// registered waits until all schedules have their first tick, and logs that.
func (w *watch) registered() error {
	return testkit.Poll(30*time.Second, "the schedules have ticks", func(ctx context.Context) error {
		var n int
		err := w.door.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+durable.DefaultTableName+
			"_schedules WHERE next_due_at IS NOT NULL").Scan(&n)
		if err == nil && n < len(cadences) {
			err = fmt.Errorf("%d of %d", n, len(cadences))
		}
		if err != nil {
			return err
		}
		return w.ticks(ctx)
	})
}

// finished waits until all work is done.
func (w *watch) finished(limit time.Duration) error {
	return testkit.Poll(limit, "all runs have ended", func(ctx context.Context) error {
		var n int
		err := w.door.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+tableOfRuns+
			" WHERE state IN ('queued', 'running')").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return err
	})
}

// rows logs the final contents of the database.
func (w *watch) rows(ctx context.Context) error {
	rows, err := w.door.DB.QueryContext(ctx, "SELECT id, handler, coalesce(schedule, ''), coalesce("+
		w.micros("due_at")+", 0), state, attempt, coalesce(key, '') FROM "+tableOfRuns)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r torture.Work
		if err := rows.Scan(&r.ID, &r.Handler, &r.Schedule, &r.Tick, &r.State, &r.Attempt, &r.Key); err != nil {
			return err
		}
		w.log.Write(torture.Line{Kind: torture.Row, Work: &r})
	}
	tried, err := w.door.DB.QueryContext(ctx, "SELECT run_id, attempt, worker, outcome FROM "+tableOfAttempts)
	if err != nil {
		return errors.Join(err, rows.Err())
	}
	defer tried.Close()
	for tried.Next() {
		var a torture.Work
		if err := tried.Scan(&a.ID, &a.Attempt, &a.Worker, &a.Outcome); err != nil {
			return err
		}
		w.log.Write(torture.Line{Kind: torture.Tried, Work: &a})
	}
	return errors.Join(rows.Err(), tried.Err())
}
