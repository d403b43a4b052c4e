package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

const (
	// insertTries is how often Insert tries a key that another transaction inserts, or that a sweep
	// deletes, at the same time.
	insertTries = 5
	// maxInserted and maxInsertedBytes bound the runs that one statement inserts. The run whose
	// payload reaches maxInsertedBytes is the last.
	maxInserted      = 1000
	maxInsertedBytes = 4 << 20
)

// newRunJSON is a run as the statement insert reads it.
type newRunJSON struct {
	N           int            `json:"n"`
	Handler     string         `json:"handler"`
	KeyUntil    store.KeyUntil `json:"key_until"`
	KeyFor      *int64         `json:"key_for"`
	Partition   string         `json:"partition"`
	TraceParent string         `json:"traceparent"`
	runJSON
}

// Insert implements store.Client.
func (s *Store) Insert(ctx context.Context, tx store.Tx, runs ...store.NewRun) ([]store.Inserted, error) {
	if len(runs) == 0 {
		return nil, ctx.Err()
	}
	done := make([]store.Inserted, len(runs))
	for range insertTries {
		batches := batchesOf(runs, done)
		if len(batches) == 0 {
			return done, nil
		}
		if err := s.insert(ctx, tx, batches, done); err != nil {
			return nil, err
		}
	}
	if len(batchesOf(runs, done)) > 0 {
		return nil, errors.New("other transactions keep inserting and deleting a key: try again")
	}
	return done, nil
}

// batchesOf returns the arguments of the statements for the runs that have no ID yet.
func batchesOf(runs []store.NewRun, done []store.Inserted) (batches []string) {
	var batch []newRunJSON
	bytes := 0
	flush := func() {
		if len(batch) > 0 {
			batches = append(batches, inJSON(batch))
		}
		batch, bytes = nil, 0
	}
	for i, r := range runs {
		if done[i].ID != 0 {
			continue
		}
		next := newRunJSON{N: i, Handler: r.Handler, KeyUntil: r.KeyUntil, Partition: r.Partition,
			TraceParent: r.TraceParent, runJSON: inRunJSON(r)}
		if r.KeyFor > 0 {
			next.KeyFor = new(r.KeyFor.Microseconds())
		}
		batch = append(batch, next)
		if bytes += len(r.Payload); len(batch) == maxInserted || bytes >= maxInsertedBytes {
			flush()
		}
	}
	flush()
	return batches
}

// insert executes the statement for each batch, and puts the outcome of each run into done.
func (s *Store) insert(ctx context.Context, tx store.Tx, batches []string, done []store.Inserted) error {
	answers := make([]string, len(batches))
	var err error
	if tx == nil {
		err = s.call(ctx, s.shared, func() []statement {
			list := make([]statement, len(batches))
			for i, batch := range batches {
				list[i] = statement{s.texts["insert"], []any{batch},
					func(rows pgx.Rows) error { return rows.Scan(&answers[i]) }}
			}
			return list
		})
	}
	for i, batch := range batches {
		if tx != nil && err == nil {
			err = sqlkit.Explain(tx.QueryRow(ctx, s.texts["insert"], batch).Scan(&answers[i]))
		}
		var inserted []struct {
			N     int
			ID    int64
			Fresh bool
		}
		if err == nil {
			err = json.Unmarshal([]byte(answers[i]), &inserted)
		}
		if err != nil {
			return err
		}
		for _, in := range inserted {
			if in.N < 0 || in.N >= len(done) {
				return fmt.Errorf("the database returned an invalid answer: run %d of %d", in.N, len(done))
			}
			done[in.N] = store.Inserted{ID: in.ID, Fresh: in.Fresh}
		}
	}
	return nil
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

// whichRuns is the placeholder for a filter's conditions. afterRun is the placeholder for the
// condition on the ID.
const (
	whichRuns = "/* which */"
	afterRun  = "/* after */"
)

// conditions returns the conditions that a filter adds to a WHERE clause, and appends their
// arguments to args.
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

// pauseFor returns the length of an override's pause in microseconds, or nil if the pause does not
// change.
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
			// Claims in progress have not seen the change. The lock is taken last, so that claims
			// do not wait for a call that waits for the row.
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
