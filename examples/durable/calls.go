package main

import (
	"context"
	"database/sql"

	"github.com/tickslot/tickslot/durable"
)

// calls is the table in which handlers record their calls. The report counts its rows, so it does
// not depend on what a worker reports about itself.
type calls struct{ *sql.DB }

func (c calls) migrate(ctx context.Context) error {
	_, err := c.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS calls (handler TEXT NOT NULL, key TEXT NOT NULL,
		tick INTEGER NOT NULL, attempt INTEGER NOT NULL, worker TEXT NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
		PRIMARY KEY (handler, key, attempt))`)
	return err
}

// wrap makes a handler record its start, and its end if it returned no error.
func (c calls) wrap(next durable.Handler) durable.Handler {
	return func(ctx context.Context, run *durable.Run) error {
		if _, err := c.ExecContext(ctx, `INSERT INTO calls (handler, key, tick, attempt, worker) VALUES (?, ?, ?, ?, ?)`,
			run.Handler, run.Key, run.DueAt.Unix(), run.Attempt, run.Worker); err != nil {
			return err
		}
		if err := next(ctx, run); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, `UPDATE calls SET ended = 1 WHERE handler = ? AND key = ? AND attempt = ?`,
			run.Handler, run.Key, run.Attempt)
		return err
	}
}

// await repeats a query until its result is 1 instead of 0.
func (c calls) await(ctx context.Context, question string, args ...any) error {
	return await(ctx, func() (yes bool, err error) {
		return yes, c.QueryRowContext(ctx, question, args...).Scan(&yes)
	})
}

// worker returns the name of the worker that made an attempt of month-end.
func (c calls) worker(ctx context.Context, attempt int) (name string, err error) {
	row := c.QueryRowContext(ctx, "SELECT worker FROM calls WHERE handler = 'month-end' AND attempt = ?", attempt)
	return name, row.Scan(&name)
}

// count fills in the report from the recorded calls.
func (c calls) count(ctx context.Context, r *report) error {
	return c.QueryRowContext(ctx, `
		WITH runs AS (SELECT handler, key, tick, sum(ended) AS ended, count(*) AS attempts FROM calls GROUP BY handler, key),
			ticks AS (SELECT max(tick) - min(tick) + 1 AS all_of_them FROM runs WHERE handler = 'invoice')
		SELECT all_of_them, (SELECT count(*) FROM runs WHERE ended > 0),
			all_of_them + 1 - (SELECT count(*) FROM runs WHERE ended > 0),
			(SELECT count(*) FROM runs WHERE ended > 1), (SELECT count(*) FROM runs WHERE attempts > 1) FROM ticks`).
		Scan(&r.Ticks, &r.Runs, &r.Lost, &r.Doubled, &r.Reclaimed)
}
