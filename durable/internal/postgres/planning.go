package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/startlog"
)

// handlerJSON is a store.Handler as the statements read it.
type handlerJSON struct {
	Name            string `json:"name"`
	MaxConcurrency  int    `json:"max_concurrency"`
	MaxPerPartition int    `json:"max_per_partition"`
	MaxAttempts     int    `json:"max_attempts"`
	Rate            int    `json:"rate"`
	Per             int64  `json:"per"` // µs
}

func handlersJSON(handlers []store.Handler) string {
	list := make([]handlerJSON, len(handlers))
	for i, h := range handlers {
		list[i] = handlerJSON{h.Name, h.MaxConcurrency, h.MaxPerPartition, h.MaxAttempts, h.Rate,
			startlog.Micros(h.Per)}
	}
	return inJSON(list)
}

type scheduleJSON struct {
	Name    string `json:"name"`
	Handler string `json:"handler"`
	Spec    string `json:"spec"`
	Text    string `json:"description"`
}

// Register implements store.Worker.
func (s *Store) Register(ctx context.Context, worker string, handlers []store.Handler, schedules []store.Schedule,
	takeOver bool) error {
	list := make([]scheduleJSON, len(schedules))
	for i, schedule := range schedules {
		list[i] = scheduleJSON(schedule)
	}
	return s.call(ctx, s.owned, func() []statement {
		return []statement{
			{text: s.texts["register"], args: []any{handlersJSON(handlers), store.WorkerKey(worker)}},
			{text: s.texts["register_schedules"], args: []any{inJSON(list), takeOver}},
		}
	})
}

// Due implements store.Worker.
func (s *Store) Due(ctx context.Context, after store.DueSchedule, limit int) (due store.Due, err error) {
	behind := instant(after.NextDueAt)
	if after.Spec != after.NextSpec || behind == "" {
		behind = "-infinity"
	}
	err = s.call(ctx, s.owned, func() []statement {
		due = store.Due{}
		return []statement{{s.texts["due"], []any{behind, after.Name, max(0, limit)},
			func(rows pgx.Rows) error {
				var d store.DueSchedule
				err := rows.Scan(into(&due.Now), into(&due.Next), into(&d.Name), into(&d.Spec), into(&d.NextSpec),
					into(&d.NextDueAt), into(&d.PausedAt), into(&d.PausedUntil))
				if d.Spec != "" { // otherwise the row has only the times
					due.Schedules = append(due.Schedules, d)
				}
				return err
			}}}
	})
	return due, err
}

type planJSON struct {
	Name        string    `json:"name"`
	Spec        string    `json:"spec"`
	NextSpec    string    `json:"next_spec"`
	NextDueAt   *string   `json:"next_due_at"`
	PausedAt    *string   `json:"paused_at"`
	PausedUntil *string   `json:"paused_until"`
	Handler     string    `json:"handler"`
	Last        *string   `json:"last"`
	Next        *string   `json:"next"`
	Coalesced   int64     `json:"coalesced"`
	Skipped     int64     `json:"skipped"`
	TicksPaused int64     `json:"ticks_paused"`
	Runs        []runJSON `json:"runs"`
}

type runJSON struct {
	DueAt    *string `json:"due_at"`
	Backfill bool    `json:"backfill"`
	Priority int     `json:"priority"`
	RunAt    *string `json:"run_at"`
	RunIn    int64   `json:"run_in"`
	Attempts int     `json:"attempts"`
	Key      *string `json:"key"`
	Payload  []byte  `json:"payload"` // in base64
	By       string  `json:"by"`
	Note     string  `json:"note"`
}

func inRunJSON(r store.NewRun) runJSON {
	return runJSON{DueAt: orNull(instant(r.DueAt)), Backfill: r.Backfill, Priority: r.Priority,
		RunAt: orNull(instant(r.RunAt)), RunIn: r.RunIn.Microseconds(), Attempts: r.MaxAttempts,
		Key: orNull(r.Key), Payload: r.Payload, By: guard.Storable(r.By.By), Note: guard.Storable(r.By.Note)}
}

// Materialize implements store.Worker.
func (s *Store) Materialize(ctx context.Context, plans []store.Plan) (done []store.Materialized, err error) {
	if len(plans) == 0 {
		return nil, ctx.Err()
	}
	list := make([]planJSON, len(plans))
	for i, p := range plans {
		list[i] = planJSON{Name: p.Schedule.Name, Spec: p.Schedule.Spec, NextSpec: p.Schedule.NextSpec,
			NextDueAt: orNull(instant(p.Schedule.NextDueAt)), PausedAt: orNull(instant(p.Schedule.PausedAt)),
			PausedUntil: orNull(instant(p.Schedule.PausedUntil)), Handler: p.Handler,
			Last: orNull(instant(p.Last)), Next: orNull(instant(p.Next)), Coalesced: p.Coalesced, Skipped: p.Skipped,
			TicksPaused: p.PausedTicks, Runs: make([]runJSON, len(p.Runs))}
		for j, r := range p.Runs {
			list[i].Runs[j] = inRunJSON(r)
		}
	}
	err = s.call(ctx, s.owned, func() []statement {
		done = nil
		return []statement{{s.texts["materialize"], []any{inJSON(list)}, func(rows pgx.Rows) error {
			var m store.Materialized
			err := rows.Scan(into(&m.Schedule), into(&m.Queued), into(&m.Coalesced), into(&m.Skipped),
				into(&m.PausedTicks))
			done = append(done, m)
			return err
		}}}
	})
	return done, err
}
