package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// SetHandler implements store.Client.
func (s *Store) SetHandler(ctx context.Context, name string, change store.Override) error {
	var paused, limit any
	if change.PausedUntil != nil {
		paused = change.PausedUntil.Microseconds()
	}
	if change.MaxConcurrency != nil {
		limit = *change.MaxConcurrency
	}
	_, err := sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (int64, error) {
		return exec(conn, s.texts["set_handler"], name, paused, limit, change.By.By, change.By.Note)
	})
	return err
}

// Handlers implements store.Reader.
func (s *Store) Handlers(ctx context.Context) ([]store.HandlerRow, error) {
	type row struct {
		store.HandlerRow
		pause
		per int64 // µs
	}
	return sqlkit.Read(ctx, s.file, func(conn *sql.Conn) ([]store.HandlerRow, error) {
		all, err := rows(conn, s.texts["list_handlers"], func(r *row) []any {
			return []any{&r.Name, &r.MaxConcurrency, &r.MaxPerPartition, &r.Rate, &r.per, &r.Override, &r.By.By,
				&r.By.Note, at{&r.until}, &r.by, &r.note, at{&r.SeenAt}, &r.Queued, &r.Running, &r.Dead}
		})
		list := make([]store.HandlerRow, len(all))
		for i, r := range all {
			list[i] = r.HandlerRow
			list[i].Pause, list[i].Per = r.orNil(), time.Duration(r.per)*time.Microsecond
			if err == nil {
				list[i].HandlerHistory, err = s.history(conn, r.Name)
			}
		}
		return list, err
	})
}

func (s *Store) history(conn *sql.Conn, handler string) (h store.HandlerHistory, err error) {
	var outcomes string
	_, err = found(conn, s.texts["history"], []any{handler, store.MaxOutcomes, store.MaxFailures}, at{&h.EndedAt},
		at{&h.SucceededAt}, &outcomes, &h.Failures, at{&h.FailingSince}, &h.LastError)
	h.Outcomes = store.OutcomesOf(outcomes)
	return h, err
}

// Stats implements store.Worker.
func (s *Store) Stats(ctx context.Context, unseen time.Duration) (store.Stats, error) {
	return sqlkit.Read(ctx, s.file, func(conn *sql.Conn) (stats store.Stats, err error) {
		_, err = found(conn, s.texts["overdue"], []any{unseen.Microseconds()}, at{&stats.Now}, at{&stats.Overdue})
		if err != nil {
			return stats, err
		}
		stats.ByHandler, err = rows(conn, s.texts["stats"], func(h *store.HandlerStats) []any {
			return []any{&h.Handler, &h.Queued, &h.Running, &h.Dead, at{&h.OldestDue}, at{&h.SeenAt}, &h.Paused}
		}, stats.Now.UnixMicro())
		for _, h := range stats.ByHandler {
			stats.OldestDue = earlier(stats.OldestDue, h.OldestDue)
		}
		return stats, err
	})
}

// earlier returns the earlier of two instants. The zero time counts as no instant.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
