package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// Register implements store.Worker.
func (s *Store) Register(ctx context.Context, handlers []store.Handler, schedules []store.Schedule,
	takeOver bool) error {
	return s.write(ctx, func(conn *sql.Conn) error {
		handler, schedule := prepare(conn, s.texts["register_handler"]), prepare(conn, s.texts["register_schedule"])
		defer handler.close()
		defer schedule.close()
		for _, h := range handlers {
			if _, err := handler.exec(h.Name, h.MaxConcurrency); err != nil {
				return err
			}
		}
		for _, c := range schedules {
			if _, err := schedule.exec(c.Name, c.Handler, c.Spec, c.Text, takeOver); err != nil {
				return err
			}
		}
		return nil
	})
}

// Due implements store.Worker.
func (s *Store) Due(ctx context.Context) (due store.Due, err error) {
	err = s.read(ctx, func(conn *sql.Conn) (err error) {
		due = store.Due{}
		if _, err := found(conn, s.texts["next_due"], nil, at{&due.Now}, at{&due.Next}); err != nil {
			return err
		}
		due.Schedules, err = rows(conn, s.texts["due"], func(d *store.DueSchedule) []any {
			return []any{&d.Name, &d.Spec, &d.NextSpec, at{&d.NextDueAt}, &d.Paused}
		}, due.Now.UnixMicro())
		return err
	})
	return due, err
}

// Materialize implements store.Worker.
func (s *Store) Materialize(ctx context.Context, plans []store.Plan) (done []store.Materialized, err error) {
	if len(plans) == 0 {
		return nil, ctx.Err()
	}
	err = s.write(ctx, func(conn *sql.Conn) error {
		done = nil
		move, insert, count := prepare(conn, s.texts["materialized"]), prepare(conn, s.texts["insert"]),
			prepare(conn, s.texts["count_ticks"])
		defer move.close()
		defer insert.close()
		defer count.close()
		for _, p := range plans {
			moved, err := move.exec(p.Schedule.Name, p.Schedule.Spec, p.Schedule.NextSpec, micros(p.Schedule.NextDueAt),
				micros(p.Next), micros(p.Last), p.Coalesced, p.Skipped, p.Paused, p.Schedule.Paused)
			if err != nil {
				return err
			}
			if moved == 0 {
				continue // another process was faster
			}
			m := store.Materialized{Schedule: p.Schedule.Name, Coalesced: p.Coalesced, Skipped: p.Skipped,
				Paused: p.Paused}
			for _, run := range p.Runs {
				var id int64
				fresh, err := insert.found(insertArgs(run), &id)
				if err != nil {
					return err
				}
				if fresh {
					m.Queued++
				} else {
					m.Coalesced++
				}
			}
			if len(p.Runs) > 0 {
				if _, err := count.exec(m.Schedule, m.Queued, m.Coalesced-p.Coalesced); err != nil {
					return err
				}
			}
			done = append(done, m)
		}
		return nil
	})
	return done, err
}

// insertArgs are those of insert.sql.
func insertArgs(r store.NewRun) []any {
	return []any{r.Handler, orNil(r.Schedule), micros(r.DueAt), r.Backfill, micros(r.RunAt), r.RunIn.Microseconds(),
		r.Priority, r.MaxAttempts, orNil(r.Key), r.Payload, r.By.By, r.By.Note}
}

// SetSchedule implements store.Client.
func (s *Store) SetSchedule(ctx context.Context, name string, change store.Override) error {
	return s.write(ctx, func(conn *sql.Conn) error {
		if change.PausedUntil == nil {
			return nil
		}
		_, err := exec(conn, s.texts["set_schedule"], name, change.PausedUntil.Microseconds(), change.By.By, change.By.Note)
		return err
	})
}

// Forget implements store.Client.
func (s *Store) Forget(ctx context.Context, schedule string) (ok bool, err error) {
	err = s.write(ctx, func(conn *sql.Conn) error {
		n, err := exec(conn, s.fill("DELETE FROM {schedules} WHERE name = ?1"), schedule)
		ok = n > 0
		return err
	})
	return ok, err
}

// Schedules implements store.Reader.
func (s *Store) Schedules(ctx context.Context) (list []store.ScheduleRow, err error) {
	type row struct {
		store.ScheduleRow
		pause
	}
	err = s.read(ctx, func(conn *sql.Conn) error {
		all, err := rows(conn, s.texts["list_schedules"], func(r *row) []any {
			return []any{&r.Name, &r.Handler, &r.Spec, &r.Text, at{&r.NextDueAt}, at{&r.LastDueAt}, at{&r.SeenAt},
				at{&r.until}, &r.by, &r.note, &r.Queued, &r.Coalesced, &r.Skipped, &r.PausedTicks}
		})
		list = make([]store.ScheduleRow, len(all))
		for i, r := range all {
			list[i] = r.ScheduleRow
			list[i].Paused = r.orNil()
		}
		return err
	})
	return list, err
}

// pause is what a row has of a pause.
type pause struct {
	until    time.Time // zero: there is none
	by, note string
}

func (p pause) orNil() *store.Pause {
	if p.until.IsZero() {
		return nil
	}
	return &store.Pause{Until: p.until, By: store.Origin{By: p.by, Note: p.note}}
}
