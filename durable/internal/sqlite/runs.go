package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Insert implements store.Client. It executes one statement per run, because statements take no
// round trip in SQLite.
func (s *Store) Insert(ctx context.Context, tx store.Tx, runs ...store.NewRun) ([]store.Inserted, error) {
	runs = slices.Clone(runs)
	for i := range runs { // the statements may still be executed after ctx has ended
		runs[i].Payload = bytes.Clone(runs[i].Payload)
	}
	if tx == nil {
		return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) ([]store.Inserted, error) {
			prepared := map[string]statement{}
			defer func() {
				for _, p := range prepared {
					p.close()
				}
			}()
			return s.insert(runs, func(query string, args []any, id *int64) (bool, error) {
				p, ok := prepared[query]
				if !ok {
					p = prepare(conn, query)
					prepared[query] = p
				}
				return p.found(args, id)
			})
		})
	}
	var all []store.Inserted
	for some := range slices.Chunk(runs, maxInserted) {
		done, err := sqlkit.InTime(ctx, func(ctx context.Context) ([]store.Inserted, error) {
			return s.insert(some, func(query string, args []any, id *int64) (bool, error) {
				err := tx.QueryRow(ctx, query, args...).Scan(id)
				if errors.Is(err, sql.ErrNoRows) {
					return false, nil
				}
				if state := sqlkit.State(err); state != "" {
					return false, otherDatabaseError{state, err}
				}
				return err == nil, err
			})
		})
		if err != nil {
			return nil, err
		}
		all = append(all, done...)
	}
	return all, nil
}

// maxInserted is how many runs share one time-out if the caller has not set one.
const maxInserted = 100

func (s *Store) insert(runs []store.NewRun, query func(string, []any, *int64) (bool, error)) ([]store.Inserted, error) {
	done := make([]store.Inserted, len(runs))
	for i, run := range runs {
		var err error
		done[i].Fresh, err = query(s.texts["insert"], insertArgs(run), &done[i].ID)
		released := false
		if err == nil && !done[i].Fresh {
			released, err = query(s.texts["release_key"], []any{run.Handler, run.Key}, new(int64))
		}
		if err == nil && released {
			done[i].Fresh, err = query(s.texts["insert"], insertArgs(run), &done[i].ID)
		}
		if err == nil && !done[i].Fresh {
			_, err = query(s.texts["by_key"], []any{run.Handler, run.Key}, &done[i].ID)
		}
		if err == nil && done[i].ID == 0 {
			err = errors.New("the database refuses the run")
		}
		if err != nil {
			return nil, err
		}
	}
	return done, nil
}

// insertArgs returns the arguments of the statement insert.
func insertArgs(r store.NewRun) []any {
	var keyFor any
	if r.KeyFor > 0 {
		keyFor = r.KeyFor.Microseconds()
	}
	return []any{r.Handler, orNil(r.Schedule), micros(r.DueAt), r.Backfill, micros(r.RunAt), r.RunIn.Microseconds(),
		r.Priority, r.MaxAttempts, orNil(r.Key), r.Payload, r.By.By, r.By.Note,
		orNil(r.TraceParent), string(r.KeyUntil), keyFor, r.Partition}
}

// An otherDatabaseError is the error of a caller's transaction that belongs to Postgres or another
// server and not to SQLite. It omits that server's own message, which complains about SQLite's SQL.
type otherDatabaseError struct {
	state string
	err   error
}

func (o otherDatabaseError) Error() string {
	return fmt.Sprintf("the transaction does not belong to the SQLite database of this store (SQLSTATE %s)", o.state)
}

func (o otherDatabaseError) Unwrap() error { return o.err }

// Cancel implements store.Client.
func (s *Store) Cancel(ctx context.Context, id int64, by store.Cause) (store.State, error) {
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (was store.State, _ error) {
		_, err := found(conn, s.texts["state"], []any{id}, &was)
		if err == nil && was != store.StateSucceeded && was != store.StateCanceled && was != "" {
			_, err = exec(conn, s.texts["cancel"], id, by.By, by.Note)
		}
		return was, err
	})
}

// Requeue implements store.Client.
func (s *Store) Requeue(ctx context.Context, which store.Filter, by store.Cause, limit int) (n int, beforeID int64,
	err error) {
	where, args := filter(which, max(0, limit))
	ids, err := sqlkit.Write(ctx, s.file, func(conn *sql.Conn) ([]int64, error) {
		ids, err := rows(conn, s.texts["to_requeue"]+" AND "+where+" ORDER BY +id DESC LIMIT ?1",
			func(id *int64) []any { return []any{id} }, args...)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		list, err := json.Marshal(ids)
		if err == nil {
			_, err = exec(conn, s.texts["requeue"], by.By, by.Note, string(list))
		}
		return ids, err
	})
	if n = len(ids); err == nil && n > 0 && n == limit {
		beforeID = ids[n-1]
	}
	return n, beforeID, err
}

// filter returns a condition, and appends its arguments to args.
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
	if !f.CreatedBefore.IsZero() {
		add("created_at < ?%d", f.CreatedBefore.UnixMicro())
	}
	if f.BeforeID > 0 {
		add("id < ?%d", f.BeforeID)
	}
	if len(f.States) > 0 { // literal text: SQLite uses a partial index only if the statement contains its condition
		states := make([]string, len(f.States))
		ended := true
		for i, state := range f.States {
			states[i] = "state = " + sqlkit.Text(string(state))
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
func (s *Store) Runs(ctx context.Context, which store.Filter, limit int) ([]store.Run, error) {
	limit = max(0, limit)
	where, args := filter(which, limit)
	all := "SELECT " + s.texts["columns"] + " FROM " + s.runs + " WHERE " + where
	return sqlkit.Read(ctx, s.file, func(conn *sql.Conn) ([]store.Run, error) {
		if len(which.States) == 0 || slices.Contains(which.States, store.StateSucceeded) {
			return rows(conn, all+" ORDER BY id DESC LIMIT ?1", columns, args...)
		}
		var n int
		count := "SELECT count(*) FROM (SELECT 1 FROM " + s.runs + " WHERE " + where +
			fmt.Sprintf(" LIMIT ?1 + %d)", maxSorted)
		if _, err := found(conn, count, args, &n); err != nil {
			return nil, err
		}
		if n == limit+maxSorted {
			newest, before := s.newest(which, where, args)
			runs, err := rows(conn, newest, columns, before...)
			if err != nil || len(runs) == limit {
				return runs, err
			}
		}
		// SQLite finds the runs by the index of their state and sorts them.
		return rows(conn, all+" ORDER BY +id DESC LIMIT ?1", columns, args...)
	})
}

// maxSorted is how many runs are sorted to list the newest; more runs count as a backlog.
// maxScanned is how many of the newest runs of all states are read to find the newest of a backlog.
// If the backlog is older than these, the read was in vain and the whole backlog is sorted.
const (
	maxSorted  = 10_000
	maxScanned = 100_000
)

// newest returns the statement that searches among the newest runs of all states, and its
// arguments.
func (s *Store) newest(which store.Filter, where string, args []any) (string, []any) {
	before := which.BeforeID
	if before <= 0 {
		before = math.MaxInt64
	}
	args = append(slices.Clone(args), before)
	last := fmt.Sprintf("?%d", len(args))
	return "SELECT " + s.texts["columns"] + " FROM " + s.runs + " NOT INDEXED WHERE id < " + last +
		" AND id >= (SELECT max(id) FROM " + s.runs + " WHERE id < " + last +
		fmt.Sprintf(") - %d AND ", maxScanned) + where + " ORDER BY id DESC LIMIT ?1", args
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, id int64) (store.Run, []store.Attempt, bool, error) {
	type answer struct {
		run      store.Run
		attempts []store.Attempt
		ok       bool
	}
	a, err := sqlkit.Read(ctx, s.file, func(conn *sql.Conn) (a answer, err error) {
		a.ok, err = found(conn, s.texts["run"], []any{id},
			append(columns(&a.run), &a.run.Payload)...)
		if err != nil || !a.ok {
			return a, err
		}
		a.attempts, err = rows(conn, s.texts["list_attempts"], func(a *store.Attempt) []any {
			return []any{&a.Attempt, &a.Worker, at{&a.StartedAt}, at{&a.FinishedAt}, &a.Outcome, &a.Error}
		}, id)
		return a, err
	})
	return a.run, a.attempts, a.ok, err
}

// NextQueued implements store.Reader.
func (s *Store) NextQueued(ctx context.Context, tx store.Tx, after int64) (run store.Run, ok bool, err error) {
	err = tx.QueryRow(ctx, s.texts["next_queued"], after).Scan(&run.ID, &run.Handler, &run.Key, &run.Payload,
		at{&run.RunAt}, &run.Priority, &run.By.By, &run.By.Note, &run.TraceParent)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Run{}, false, nil
	}
	return run, err == nil, err
}

// Sweep implements store.Worker.
func (s *Store) Sweep(ctx context.Context, r store.Retention, limit int) (int, error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (deleted int, _ error) {
		old, err := rows(conn, s.texts["old"], func(id *int64) []any { return []any{id} }, r.Succeeded.Microseconds(),
			r.Dead.Microseconds(), r.Canceled.Microseconds(), limit)
		if err != nil {
			return 0, err
		}
		ids, err := json.Marshal(old)
		if err != nil {
			return 0, err
		}
		for _, name := range []string{"delete_attempts", "delete_runs"} {
			if len(old) == 0 {
				break
			}
			if _, err := exec(conn, s.texts[name], string(ids)); err != nil {
				return 0, err
			}
		}
		deleted = len(old)
		for _, name := range []string{"delete_schedules", "delete_handlers"} {
			if r.Unseen <= 0 {
				break
			}
			n, err := exec(conn, s.texts[name], r.Unseen.Microseconds(), limit-deleted)
			if err != nil {
				return 0, err
			}
			deleted += int(n)
		}
		return deleted, nil
	})
}
