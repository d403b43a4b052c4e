package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// insertTries is how often Insert looks for a key that another transaction has inserted, or a sweep
// deleted, in the same moment.
const insertTries = 5

// Insert implements store.Client.
func (s *Store) Insert(ctx context.Context, tx store.Tx, r store.NewRun) (id int64, fresh bool, err error) {
	text := s.texts["insert"]
	args := []any{r.Handler, r.Schedule, instant(r.DueAt), r.Backfill, instant(r.RunAt), r.RunIn.Microseconds(),
		int64(r.Priority), int64(r.MaxAttempts), r.Key, r.Payload, guard.Storable(r.By.By), guard.Storable(r.By.Note),
		r.TraceParent}
	for range insertTries {
		if tx != nil {
			err = sqlkit.Explain(tx.QueryRow(ctx, text, args...).Scan(&id, &fresh))
		} else {
			err = s.call(ctx, s.shared, func() []statement {
				return []statement{{text, args, func(rows pgx.Rows) error { return rows.Scan(&id, &fresh) }}}
			})
		}
		if err != nil || id != 0 {
			return id, fresh, err
		}
	}
	return 0, false, errors.New("the key comes and goes: try again")
}

// Cancel implements store.Client.
func (s *Store) Cancel(ctx context.Context, id int64, by store.Cause) (state store.State, err error) {
	err = s.call(ctx, s.shared, func() []statement {
		return []statement{{s.texts["cancel"], []any{id, guard.Storable(by.By), guard.Storable(by.Note)},
			func(rows pgx.Rows) error { return rows.Scan(into(&state)) }}}
	})
	return state, err
}

// Requeue implements store.Client.
func (s *Store) Requeue(ctx context.Context, which store.Filter, by store.Cause, limit int) (n int, beforeID int64,
	err error) {
	args := []any{guard.Storable(by.By), guard.Storable(by.Note), max(0, limit)}
	text := strings.Replace(s.texts["requeue"], whichRuns, conditions(which, &args), 1)
	err = s.call(ctx, s.shared, func() []statement {
		return []statement{{text, args, func(rows pgx.Rows) error { return rows.Scan(into(&n), into(&beforeID)) }}}
	})
	return n, beforeID, err
}

// whichRuns stands for the conditions of a filter, and afterRun for that on the ID alone.
const (
	whichRuns = "/* which */"
	afterRun  = "/* after */"
)

// conditions returns what a filter adds to a WHERE, whose arguments it appends.
func conditions(which store.Filter, args *[]any) string {
	var b strings.Builder
	add := func(condition string, arg any) {
		*args = append(*args, arg)
		fmt.Fprintf(&b, " AND "+condition, len(*args))
	}
	if len(which.IDs) > 0 {
		add("r.id IN (SELECT x::bigint FROM json_array_elements_text($%d::text::json) AS i(x))", inJSON(which.IDs))
	}
	if which.Handler != "" {
		add("r.handler = $%d::text", which.Handler)
	}
	if which.Schedule != "" {
		add("r.schedule = $%d::text", which.Schedule)
	}
	if len(which.States) > 0 {
		add("r.state IN (SELECT x FROM json_array_elements_text($%d::text::json) AS s(x))", inJSON(which.States))
	}
	if !which.CreatedBefore.IsZero() {
		add("r.created_at < $%d::text::timestamptz", instant(which.CreatedBefore))
	}
	if which.BeforeID != 0 {
		add("r.id < $%d::bigint", which.BeforeID)
	}
	return b.String()
}

// pauseFor returns how long an override pauses, in microseconds; nil: it says nothing about that.
func pauseFor(change store.Override) *int64 {
	if change.PausedUntil == nil {
		return nil
	}
	us := max(0, change.PausedUntil.Microseconds())
	return &us
}

// SetHandler implements store.Client.
func (s *Store) SetHandler(ctx context.Context, name string, change store.Override) error {
	return s.call(ctx, s.shared, func() []statement {
		return []statement{
			{text: s.texts["set_handler"], args: []any{name, change.MaxConcurrency, guard.Storable(change.By.By),
				guard.Storable(change.By.Note), pauseFor(change)}},
			// Claims under way have not seen it. The lock is taken last: claims do not wait for
			// those who wait for the row.
			{text: "SELECT pg_advisory_xact_lock($1::bigint)", args: []any{s.claimLock}},
		}
	})
}

// SetSchedule implements store.Client.
func (s *Store) SetSchedule(ctx context.Context, name string, change store.Override) error {
	return s.call(ctx, s.shared, func() []statement {
		return []statement{{text: s.texts["set_schedule"], args: []any{name, pauseFor(change),
			guard.Storable(change.By.By), guard.Storable(change.By.Note)}}}
	})
}

// Forget implements store.Client.
func (s *Store) Forget(ctx context.Context, schedule string) (ok bool, err error) {
	err = s.call(ctx, s.shared, func() []statement {
		return []statement{{s.texts["forget_schedule"], []any{schedule},
			func(rows pgx.Rows) error { return rows.Scan(into(&ok)) }}}
	})
	return ok, err
}
