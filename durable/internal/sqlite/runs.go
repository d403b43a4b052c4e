package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// Insert implements store.Client.
func (s *Store) Insert(ctx context.Context, tx store.Tx, run store.NewRun) (id int64, fresh bool, err error) {
	if tx == nil {
		err = s.write(ctx, func(conn *sql.Conn) error {
			id, fresh, err = s.insert(run, func(query string, args []any, id *int64) (bool, error) {
				return found(conn, query, args, id)
			})
			return err
		})
		return id, fresh, err
	}
	type answer struct {
		id    int64
		fresh bool
	}
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	a, err := sqlkit.InTime(ctx, func(ctx context.Context) (a answer, err error) {
		a.id, a.fresh, err = s.insert(run, func(query string, args []any, id *int64) (bool, error) {
			err := tx.QueryRow(ctx, query, args...).Scan(id)
			if errors.Is(err, sql.ErrNoRows) {
				return false, nil
			}
			return err == nil, err
		})
		return a, err
	})
	return a.id, a.fresh, err
}

func (s *Store) insert(run store.NewRun, query func(string, []any, *int64) (bool, error)) (id int64, fresh bool,
	err error) {
	if fresh, err = query(s.texts["insert"], insertArgs(run), &id); fresh || err != nil {
		return id, fresh, err
	}
	there, err := query(s.texts["by_key"], []any{run.Handler, run.Key}, &id)
	if err == nil && !there {
		err = errors.New("the tick has its run already, or another one of its schedule waits")
	}
	return id, false, err
}

// Cancel implements store.Client.
func (s *Store) Cancel(ctx context.Context, id int64, by store.Origin) (was store.State, err error) {
	err = s.write(ctx, func(conn *sql.Conn) error {
		was = ""
		_, err := found(conn, s.fill("SELECT state FROM {runs} WHERE id = ?1"), []any{id}, &was)
		if err == nil && (was == store.StateQueued || was == store.StateRunning) {
			_, err = exec(conn, s.texts["cancel"], id, by.By, by.Note)
		}
		return err
	})
	return was, err
}

// Requeue implements store.Client.
func (s *Store) Requeue(ctx context.Context, which store.Filter, by store.Origin) (int, error) {
	where, args := filter(which, by.By, by.Note)
	var n int64
	err := s.write(ctx, func(conn *sql.Conn) (err error) {
		n, err = exec(conn, s.texts["requeue"]+" AND "+where, args...)
		return err
	})
	return int(n), err
}

// filter returns a condition, and its arguments after others.
func filter(f store.Filter, args ...any) (string, []any) {
	conditions := []string{"true"}
	add := func(condition string, arg any) {
		args = append(args, arg)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if len(f.IDs) > 0 {
		ids, _ := json.Marshal(f.IDs)
		add("id IN (SELECT value FROM json_each(?%d))", string(ids))
	}
	if f.Handler != "" {
		add("handler = ?%d", f.Handler)
	}
	if f.Schedule != "" {
		add("schedule = ?%d", f.Schedule)
	}
	if !f.Before.IsZero() {
		add("created_at < ?%d", f.Before.UnixMicro())
	}
	if f.After > 0 {
		add("id < ?%d", f.After)
	}
	if len(f.States) > 0 { // as text: SQLite uses a partial index only if it sees its condition
		states := make([]string, len(f.States))
		ended := true
		for i, state := range f.States {
			states[i] = "state = " + sqlmigrate.Text(string(state))
			ended = ended && state != store.StateQueued && state != store.StateRunning
		}
		conditions = append(conditions, "("+strings.Join(states, " OR ")+")")
		if ended {
			conditions = append(conditions, "finished_at IS NOT NULL")
		}
	}
	return strings.Join(conditions, " AND "), args
}

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, which store.Filter, limit int) (runs []store.Run, err error) {
	where, args := filter(which, max(0, limit))
	order := "id"
	if len(which.States) > 0 && !slices.Contains(which.States, store.StateSucceeded) {
		order = "+id" // few runs are in the other states: SQLite finds them by an index, and sorts them
	}
	err = s.read(ctx, func(conn *sql.Conn) (err error) {
		runs, err = rows(conn, s.fill("SELECT {run} FROM {runs} WHERE ")+where+" ORDER BY "+order+" DESC LIMIT ?1",
			columns, args...)
		return err
	})
	return runs, err
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, id int64) (run store.Run, attempts []store.Attempt, ok bool, err error) {
	err = s.read(ctx, func(conn *sql.Conn) error {
		run = store.Run{}
		ok, err = found(conn, s.fill("SELECT {run}, payload FROM {runs} WHERE id = ?1"), []any{id},
			append(columns(&run), &run.Payload)...)
		if err != nil || !ok {
			return err
		}
		attempts, err = rows(conn, s.fill("SELECT attempt, worker, started_at, finished_at, outcome, error "+
			"FROM {attempts} WHERE run_id = ?1 ORDER BY attempt"), func(a *store.Attempt) []any {
			return []any{&a.Attempt, &a.Worker, at{&a.StartedAt}, at{&a.FinishedAt}, &a.Outcome, &a.Error}
		}, id)
		return err
	})
	return run, attempts, ok, err
}

// Sweep implements store.Worker.
func (s *Store) Sweep(ctx context.Context, r store.Retention, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	err = s.write(ctx, func(conn *sql.Conn) error {
		deleted = 0
		old, err := rows(conn, s.texts["old"], func(id *int64) []any { return []any{id} }, r.Succeeded.Microseconds(),
			r.Dead.Microseconds(), r.Canceled.Microseconds(), limit)
		if err != nil {
			return err
		}
		if len(old) > 0 {
			ids, err := json.Marshal(old)
			if err != nil {
				return err
			}
			for _, statement := range []string{
				"DELETE FROM {attempts} WHERE run_id IN (SELECT value FROM json_each(?1))",
				"DELETE FROM {runs} WHERE id IN (SELECT value FROM json_each(?1))",
			} {
				if _, err := exec(conn, s.fill(statement), string(ids)); err != nil {
					return err
				}
			}
		}
		deleted = len(old)
		for _, table := range []string{"{schedules}", "{handlers}"} {
			if r.Unseen <= 0 {
				break
			}
			n, err := exec(conn, s.fill("DELETE FROM "+table+" WHERE name IN (SELECT name FROM "+table+
				" WHERE name <> '' AND seen_at < {now} - ?1 LIMIT ?2)"), r.Unseen.Microseconds(), limit-deleted)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		return nil
	})
	return deleted, err
}
