package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Register implements store.Worker.
func (s *Store) Register(ctx context.Context, worker string, handlers []store.Handler, schedules []store.Schedule,
	takeOver bool) error {
	_, err := sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (answer none, _ error) {
		handler, schedule := prepare(conn, s.texts["register_handler"]), prepare(conn, s.texts["register_schedule"])
		defer handler.close()
		defer schedule.close()
		for _, h := range handlers {
			if _, err := handler.exec(h.Name, h.MaxConcurrency, h.MaxPerPartition, h.Rate,
				h.Per.Microseconds()); err != nil {
				return answer, err
			}
			if h.MaxConcurrency < 2 {
				continue
			}
			var now time.Time
			var text string
			if _, err := found(conn, s.texts["peers"], []any{h.Name}, at{&now}, &text); err != nil {
				return answer, err
			}
			peers := store.ParsePeers(text)
			peers.See(store.WorkerKey(worker), now.UnixMicro())
			if _, err := exec(conn, s.texts["note_peers"], h.Name, peers.String()); err != nil {
				return answer, err
			}
		}
		for _, c := range schedules {
			if _, err := schedule.exec(c.Name, c.Handler, c.Spec, c.Text, takeOver); err != nil {
				return answer, err
			}
		}
		return answer, nil
	})
	return err
}

// Due implements store.Worker.
func (s *Store) Due(ctx context.Context, after store.DueSchedule, limit int) (store.Due, error) {
	behind := int64(-1)
	if after.Spec == after.NextSpec && !after.NextDueAt.IsZero() {
		behind = after.NextDueAt.UnixMicro()
	}
	return sqlkit.Read(ctx, s.file, func(conn *sql.Conn) (due store.Due, err error) {
		if _, err := found(conn, s.texts["next_due"], nil, at{&due.Now}, at{&due.Next}); err != nil {
			return due, err
		}
		due.Schedules, err = rows(conn, s.texts["due"], func(d *store.DueSchedule) []any {
			return []any{&d.Name, &d.Spec, &d.NextSpec, at{&d.NextDueAt}, at{&d.PausedAt}, at{&d.PausedUntil}}
		}, due.Now.UnixMicro(), behind, after.Name, max(0, limit))
		return due, err
	})
}

// Materialize implements store.Worker.
func (s *Store) Materialize(ctx context.Context, plans []store.Plan) ([]store.Materialized, error) {
	if len(plans) == 0 {
		return nil, ctx.Err()
	}
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (done []store.Materialized, _ error) {
		p := planner{prepare(conn, s.texts["materialized"]), prepare(conn, s.texts["insert"]),
			prepare(conn, s.texts["count_ticks"])}
		defer p.close()
		for _, plan := range plans {
			m, ok, err := p.carryOut(plan)
			if err != nil {
				return nil, err
			}
			if ok {
				done = append(done, m)
			}
		}
		return done, nil
	})
}

// A planner has the statements that execute plans.
type planner struct{ move, insert, count statement }

func (p planner) close() {
	p.move.close()
	p.insert.close()
	p.count.close()
}

// carryOut executes a plan. ok is false if another process was faster.
func (p planner) carryOut(plan store.Plan) (m store.Materialized, ok bool, err error) {
	is := plan.Schedule
	moved, err := p.move.exec(is.Name, is.Spec, is.NextSpec, micros(is.NextDueAt), micros(is.PausedAt),
		micros(is.PausedUntil), micros(plan.Next), micros(plan.Last), plan.Coalesced, plan.Skipped, plan.PausedTicks)
	if err != nil || moved == 0 {
		return m, false, err
	}
	m = store.Materialized{Schedule: is.Name, Coalesced: plan.Coalesced, Skipped: plan.Skipped,
		PausedTicks: plan.PausedTicks}
	for _, run := range plan.Runs {
		fresh, err := p.insert.found(insertArgs(run), new(int64))
		if err != nil {
			return m, false, err
		}
		if fresh {
			m.Queued++
		} else {
			m.Coalesced++
		}
	}
	if len(plan.Runs) > 0 {
		_, err = p.count.exec(m.Schedule, m.Queued, m.Coalesced-plan.Coalesced)
	}
	return m, true, err
}

// SetSchedule implements store.Client.
func (s *Store) SetSchedule(ctx context.Context, name string, change store.Override) error {
	if change.PausedUntil == nil {
		return ctx.Err()
	}
	_, err := sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (int64, error) {
		return exec(conn, s.texts["set_schedule"], name, change.PausedUntil.Microseconds(), change.By.By,
			change.By.Note)
	})
	return err
}

// Forget implements store.Client.
func (s *Store) Forget(ctx context.Context, schedule string) (bool, error) {
	n, err := sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (int64, error) {
		return exec(conn, s.texts["forget_schedule"], schedule)
	})
	return n > 0, err
}

// Schedules implements store.Reader.
func (s *Store) Schedules(ctx context.Context) ([]store.ScheduleRow, error) {
	type row struct {
		store.ScheduleRow
		pause
	}
	return sqlkit.Read(ctx, s.file, func(conn *sql.Conn) ([]store.ScheduleRow, error) {
		all, err := rows(conn, s.texts["list_schedules"], func(r *row) []any {
			return []any{&r.Name, &r.Handler, &r.Spec, &r.Text, at{&r.NextDueAt}, at{&r.LastDueAt}, at{&r.SeenAt},
				at{&r.until}, &r.by, &r.note, &r.Queued, &r.Coalesced, &r.Skipped, &r.PausedTicks}
		})
		list := make([]store.ScheduleRow, len(all))
		for i, r := range all {
			list[i] = r.ScheduleRow
			list[i].Pause = r.orNil()
		}
		return list, err
	})
}

// pause holds the columns of a row that describe a pause.
type pause struct {
	until    time.Time // zero if there is no pause
	by, note string
}

func (p pause) orNil() *store.Pause {
	if p.until.IsZero() {
		return nil
	}
	return &store.Pause{Until: p.until, By: store.Cause{By: p.by, Note: p.note}}
}
