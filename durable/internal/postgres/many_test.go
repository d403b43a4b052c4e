package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// A hundred thousand schedules that come due at the same time are found in pages of a thousand. A
// call reads only its page, and computes values that are the same for all rows only once.
//
// Fails when a part of the statement is executed for each row of the answer (which took 14 s for
// 20,000 rows, so that every call timed out), or when a call reads all due schedules.
func TestManySchedulesAreDueAtOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	const schedules, page = 100_000, 1000
	d.exec(t, fmt.Sprintf("INSERT INTO %s (name, handler, spec, next_spec, next_due_at, seen_at) SELECT "+
		"'schedule' || i, 'orders', '1', '1', now() - i %% 7 * interval '1 s', now() FROM generate_series(1, %d) AS i",
		s.names["schedules"], schedules),
		fmt.Sprintf("INSERT INTO %s (name, seen_at) SELECT 'handler' || i, now() FROM generate_series(1, 200) AS i",
			s.names["handlers"]))
	last := "schedule9"
	for _, generic := range []bool{false, true} {
		args := []any{time.Now().Add(-4 * time.Second).Format(time.RFC3339), last, page}
		plan, err := s.explainPlan(t.Context(), "due", args, generic)
		if err != nil {
			t.Fatal(err)
		}
		if most := loops(t, plan); most > 1 {
			t.Errorf("a part is executed %d times:\n%s", most, plan)
		}
		if pages := pagesRead(t, plan); pages > 1500 {
			t.Errorf("%d pages of the table and the index are read for %d schedules:\n%s", pages, page, plan)
		}
		plan, err = s.explainPlan(t.Context(), "list_handlers", []any{int64(3600e6)}, generic)
		if err != nil {
			t.Fatal(err)
		}
		if pages := pagesRead(t, plan); pages > 5000 {
			t.Errorf("%d pages are read for the statistics of 200 handlers:\n%s", pages, plan)
		}
	}
	seen, calls := map[string]bool{}, 0
	for after, more := (store.DueSchedule{}), true; more; calls++ {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the default of durable.Config.CallTimeout
		due, err := s.Due(ctx, after, page)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due.Schedules {
			seen[d.Name], after = true, d
		}
		more = len(due.Schedules) == page
	}
	if len(seen) != schedules || calls != schedules/page+1 {
		t.Errorf("%d schedules were found in %d calls", len(seen), calls)
	}
}

var loopCount = regexp.MustCompile(`Scan.* loops=(\d+)\)`)

// loops returns how often the most frequent scan of a plan was executed.
func loops(t *testing.T, plan string) (most int) {
	t.Helper()
	for _, m := range loopCount.FindAllStringSubmatch(plan, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	return most
}

// countingTx counts the statements of a transaction.
type countingTx struct {
	store.Tx
	statements *int
}

func (t countingTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	*t.statements++
	return t.Tx.QueryRow(ctx, query, args...)
}

// Many runs are queued in few statements, each of which is bounded in runs and in bytes.
//
// Fails when each run has its own statement, or when one statement contains all runs.
func TestManyRunsAreFewStatements(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	for _, c := range []struct{ runs, payload, want int }{{1, 0, 1}, {1000, 0, 1}, {2500, 10, 3}, {8, 1 << 20, 2}} {
		tx, err := s.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		statements := 0
		many := make([]store.NewRun, c.runs)
		for i := range many {
			many[i] = store.NewRun{Handler: "orders", Payload: make([]byte, c.payload)}
		}
		done, err := s.Insert(t.Context(), countingTx{pgxTx{tx}, &statements}, many...)
		if err != nil || len(done) != c.runs || statements != c.want {
			t.Errorf("%+v: %d runs in %d statements, %v", c, len(done), statements, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
