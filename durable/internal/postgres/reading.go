package postgres

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, which store.Filter, limit int) (runs []store.Run, err error) {
	text, args := s.listing(which, limit)
	err = s.call(ctx, s.shared, func() []statement {
		runs = nil
		return []statement{{text, args, func(rows pgx.Rows) error {
			var r store.Run
			err := scanRun(rows, &r)
			runs = append(runs, r)
			return err
		}}}
	})
	return runs, err
}

// listing returns the statement that lists runs. Each state has its own part, because each state
// has its own index. Nearly all runs have succeeded, so those are found among the newest. The runs
// of any other state are few, or are a backlog: see of_state.
func (s *Store) listing(which store.Filter, limit int) (text string, args []any) {
	states := slices.Compact(slices.Sorted(slices.Values(which.States)))
	which.States = nil
	args = []any{max(0, limit)}
	where := conditions(which, &args)
	newest := func(of string) string {
		return "SELECT r.* FROM " + s.names["runs"] + " AS r WHERE " + of + where +
			" ORDER BY r.id DESC LIMIT $1::bigint"
	}
	var parts []string
	for _, state := range states {
		of := "r.state = " + sqlkit.Text(string(state))
		switch state {
		case store.StateSucceeded:
			parts = append(parts, newest(of))
			continue
		case store.StateDead, store.StateCanceled:
			of += " AND r.finished_at IS NOT NULL"
		}
		after := conditions(store.Filter{BeforeID: which.BeforeID}, &args)
		parts = append(parts, strings.NewReplacer(whichRuns, of+where, afterRun, after).Replace(s.texts["of_state"]))
	}
	if len(parts) == 0 {
		parts = []string{newest("true")}
	}
	return strings.Replace(s.texts["list_runs"], whichRuns, "("+strings.Join(parts, ") UNION ALL (")+")", 1), args
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, id int64) (run store.Run, attempts []store.Attempt, ok bool, err error) {
	err = s.call(ctx, s.shared, func() []statement {
		run, attempts = store.Run{}, nil
		return []statement{
			{s.texts["run"], []any{id}, func(rows pgx.Rows) error { return scanRun(rows, &run) }},
			{s.texts["list_attempts"], []any{id}, func(rows pgx.Rows) error {
				var a store.Attempt
				err := rows.Scan(into(&a.Attempt), into(&a.Worker), into(&a.StartedAt), into(&a.FinishedAt),
					into(&a.Outcome), into(&a.Error))
				attempts = append(attempts, a)
				return err
			}},
		}
	})
	if run.ID == 0 { // the run was deleted between the two statements
		attempts = nil
	}
	return run, attempts, run.ID != 0, err
}

// Schedules implements store.Reader.
func (s *Store) Schedules(ctx context.Context) (list []store.ScheduleRow, err error) {
	err = s.call(ctx, s.shared, func() []statement {
		list = nil
		return []statement{{text: s.texts["list_schedules"], row: func(rows pgx.Rows) error {
			var r store.ScheduleRow
			var until time.Time
			var by store.Cause
			err := rows.Scan(into(&r.Name), into(&r.Handler), into(&r.Spec), into(&r.Text), into(&r.NextDueAt),
				into(&r.LastDueAt), into(&r.SeenAt), into(&until), into(&by.By), into(&by.Note), into(&r.Queued),
				into(&r.Coalesced), into(&r.Skipped), into(&r.PausedTicks))
			r.Pause = pause(until, by)
			list = append(list, r)
			return err
		}}}
	})
	return list, err
}

// Handlers implements store.Reader.
func (s *Store) Handlers(ctx context.Context) (list []store.HandlerRow, err error) {
	histories := map[string]store.HandlerHistory{}
	begin := func() { list = nil; clear(histories) }
	_, err = s.handlers(ctx, s.shared, 0, begin, func(r store.HandlerRow, registered bool, _ time.Time) {
		if registered {
			list = append(list, r)
		}
	}, statement{s.texts["list_histories"], []any{store.MaxOutcomes, store.MaxFailures}, func(rows pgx.Rows) error {
		var name, outcomes string
		var h store.HandlerHistory
		err := rows.Scan(into(&name), into(&h.EndedAt), into(&h.SucceededAt), into(&outcomes), into(&h.Failures),
			into(&h.FailingSince), into(&h.LastError))
		h.Outcomes = store.OutcomesOf(outcomes)
		if h.Failures == 0 { // greatest passes over NULL
			h.FailingSince = time.Time{}
		}
		histories[name] = h
		return err
	}})
	for i := range list {
		list[i].HandlerHistory = histories[list[i].Name]
	}
	return list, err
}

// Stats implements store.Worker.
func (s *Store) Stats(ctx context.Context, unseen time.Duration) (store.Stats, error) {
	var list []store.HandlerStats
	stats, err := s.handlers(ctx, s.owned, unseen, func() { list = nil },
		func(r store.HandlerRow, registered bool, oldest time.Time) {
			if r.Name != "" {
				list = append(list, store.HandlerStats{Handler: r.Name, Queued: r.Queued, Running: r.Running,
					Dead: r.Dead, OldestDue: oldest, SeenAt: r.SeenAt, Paused: r.Pause != nil})
			}
		})
	stats.ByHandler = list
	return stats, err
}

// handlers calls begin, and then each for every handler that has a row or a run. The Stats that it
// returns lack ByHandler. More statements are executed in the same call.
func (s *Store) handlers(ctx context.Context, from source, unseen time.Duration, begin func(),
	each func(r store.HandlerRow, registered bool, oldest time.Time), more ...statement) (stats store.Stats,
	err error) {
	err = s.call(ctx, from, func() []statement {
		begin()
		return append([]statement{{s.texts["list_handlers"], []any{unseen.Microseconds()}, func(rows pgx.Rows) error {
			var r store.HandlerRow
			var name *string
			var registered bool
			var per int64
			var until, oldest time.Time
			var by store.Cause
			err := rows.Scan(into(&stats.Now), into(&stats.OldestDue), into(&stats.Overdue), &name, into(&registered),
				into(&r.MaxConcurrency), into(&r.MaxPerPartition), into(&r.Rate), into(&per), into(&r.Override),
				into(&r.By.By), into(&r.By.Note), into(&until), into(&by.By), into(&by.Note), into(&r.SeenAt),
				into(&r.Queued), into(&r.Running), into(&r.Dead), into(&oldest))
			if name != nil { // otherwise the row has only the times
				r.Name, r.Pause, r.Per = *name, pause(until, by), time.Duration(per)*time.Microsecond
				each(r, registered, oldest)
			}
			return err
		}}}, more...)
	})
	return stats, err
}

// NextQueued implements store.Reader.
func (s *Store) NextQueued(ctx context.Context, tx store.Tx, after int64) (run store.Run, ok bool, err error) {
	var runAt int64
	err = tx.QueryRow(ctx, s.texts["next_queued"], after).Scan(&run.ID, &run.Handler, &run.Key, &run.Payload, &runAt,
		&run.Priority, &run.By.By, &run.By.Note, &run.TraceParent)
	if errors.Is(err, sql.ErrNoRows) { // matches pgx.ErrNoRows, too
		return store.Run{}, false, nil
	}
	run.RunAt = time.UnixMicro(runAt)
	return run, err == nil, sqlkit.Explain(err)
}
