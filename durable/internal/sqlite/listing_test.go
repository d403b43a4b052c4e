//go:build unix

package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// A recorder is a driver that records the queries of its only connection.
type recorder struct {
	driver.Driver
	queries []string
}

// Open implements driver.Driver.
func (r *recorder) Open(name string) (driver.Conn, error) {
	conn, err := r.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.New("the driver has changed")
	}
	return recorderConn{full, r}, nil
}

type recorderConn struct {
	fullConn
	r *recorder
}

func (c recorderConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.r.queries = append(c.r.queries, query)
	return c.fullConn.QueryContext(ctx, query, args)
}

// The newest runs of a backlog, or of dead letters that are kept forever, are found without sorting
// all of them. They are also found if the backlog is older than many other runs, or if few runs
// have the state.
//
// Fails when a listing sorts the whole backlog, or leaves out runs that are older than others.
func TestBacklogIsListedFromItsEnd(t *testing.T) {
	t.Parallel()
	plain := open(t, dsn(filepath.Join(t.TempDir(), "durable.db")))
	recorded := &recorder{Driver: plain.Driver()}
	name := "recorder of " + t.Name()
	sql.Register(name, recorded)
	db, err := sql.Open(name, dsn(filepath.Join(t.TempDir(), "durable.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	s := migrated(t, on(t, db))
	exec := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(text, "{runs}", table+"_runs")); err != nil {
			t.Fatal(err)
		}
	}
	const all, limit = 12_000, 50
	exec(fmt.Sprintf("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO {runs} "+
		"(handler, run_at, created_at) SELECT CASE i %% 1000 WHEN 0 THEN 'rare' ELSE 'orders' END, -i, 0 FROM n", all))
	check := func(what string, which store.Filter, step int, sorts bool) {
		t.Helper()
		recorded.queries = nil
		runs, err := s.Runs(t.Context(), which, limit)
		first := int64(all)
		if which.BeforeID > 0 {
			first = which.BeforeID - 1
		}
		if err != nil || len(runs) != min(limit, all/step) {
			t.Fatalf("%s: %d runs, %v", what, len(runs), err)
		}
		for i, run := range runs {
			if want := first - int64(i*step); run.ID != want {
				t.Fatalf("%s: run %d is %d, want %d", what, i, run.ID, want)
			}
		}
		sorted := false
		for _, query := range recorded.queries {
			rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, 4)...)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					t.Fatal(err)
				}
				sorted = sorted || strings.Contains(detail, "USE TEMP B-TREE")
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if sorted != sorts {
			t.Errorf("%s: sorted: %t, want %t: %q", what, sorted, sorts, recorded.queries)
		}
	}
	for _, state := range []store.State{store.StateQueued, store.StateDead} {
		if state == store.StateDead {
			exec("DELETE FROM {runs} WHERE state = 'succeeded'")
			exec("UPDATE {runs} SET state = 'dead', finished_at = -id")
		}
		which := store.Filter{States: []store.State{state}}
		check(fmt.Sprint(state, ", the newest"), which, 1, false)
		check(fmt.Sprint(state, ", a later page"), store.Filter{States: which.States, BeforeID: 11_000}, 1, false)
		check(fmt.Sprint(state, ", few"), store.Filter{States: which.States, Handler: "rare"}, 1000, true)
		exec("INSERT INTO {runs} (id, handler, run_at, state, finished_at, created_at) " +
			"VALUES (2000000, 'orders', 0, 'succeeded', 0, 0)")
		check(fmt.Sprint(state, ", older than others"), which, 1, true)
	}
}
