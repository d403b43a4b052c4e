package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// running queues n runs, claims them, and returns them.
func (s *Store) running(t testing.TB, n int) []store.Run {
	t.Helper()
	if err := s.Register(t.Context(), "w", orders, nil, true); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"}); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := s.claim(t.Context(), n)
	if err != nil || len(runs) != n {
		t.Fatalf("claimed %d of %d: %v", len(runs), n, err)
	}
	return runs
}

func succeeded(runs []store.Run) (results []store.Result) {
	for _, run := range runs {
		results = append(results, store.Result{RunKey: run.RunKey, Outcome: store.OutcomeOK,
			State: store.StateSucceeded})
	}
	return results
}

func keysOf(runs []store.Run) (keys []store.RunKey) {
	for _, run := range runs {
		keys = append(keys, run.RunKey)
	}
	return keys
}

// hold executes statements in a transaction of another session, which ends when release is called.
func (d database) hold(t testing.TB, statements ...string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.server.DSN("", "", d.name))
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range append([]string{"BEGIN"}, statements...) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		_, _ = conn.Exec(context.Background(), "ROLLBACK") // once the server has answered, nothing is locked any more
		_ = conn.Close(context.Background())
	}
}

// A row that another session keeps locked affects only its own run.
//
// Fails when Renew waits for a row before it has renewed the others, or when Finish waits for a row
// at all.
func TestRowThatIsLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	runs := s.running(t, 3)
	release := d.hold(t, fmt.Sprintf("SELECT FROM %s WHERE id = %d FOR UPDATE", s.names["runs"], runs[1].ID))
	defer release()
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	renewed, err := s.Renew(brief(), "w", keysOf(runs), time.Hour)
	if err != nil || len(renewed) != 2 {
		t.Errorf("Renew: %v, %v; want two of three", renewed, err)
	}
	done, err := s.Finish(brief(), "w", succeeded(runs))
	if err != nil || len(done.Counted) != 2 || !slices.Equal(done.Locked, keysOf(runs[1:2])) {
		t.Errorf("Finish: %+v, %v; want two of three, and the other as locked", done, err)
	}
	// If the only row is locked, that is not a failure of the database, so the worker continues.
	for range 2 {
		if renewed, err := s.Renew(brief(), "w", keysOf(runs[1:2]), time.Hour); err != nil || len(renewed) != 0 {
			t.Errorf("Renew: %v, %v; want none, and no error", renewed, err)
		}
	}
	for i, want := range []store.State{store.StateSucceeded, store.StateRunning, store.StateSucceeded} {
		if run, _, _, err := s.Run(t.Context(), runs[i].ID); err != nil || run.State != want {
			t.Errorf("run %d: %v, %v; want %s", i, run.State, err, want)
		}
	}
	release()
	if done, err := s.Finish(t.Context(), "w", succeeded(runs)); err != nil || len(done.Counted) != 3 {
		t.Errorf("Finish after the row was unlocked: %+v, %v", done, err)
	}
	queued, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.hold(t, fmt.Sprintf("SELECT FROM %s WHERE id = %d FOR UPDATE", s.names["runs"], queued[0].ID))()
	if runs, err := s.claim(brief(), 10); err != nil || len(runs) != 1 || runs[0].ID != other[0].ID {
		t.Errorf("Claim: %v, %v; want the run that is not locked", runs, err)
	}
}

// Rows that another session keeps locked do not count towards the limit of their handler, and do
// not delay other handlers. The claim takes the runs after them, the most urgent first, and never
// more than the limit.
//
// Fails when a claim reads only as many runs of a limited handler as it has room for.
func TestRowsThatAreLockedTakeNoRoom(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	for _, c := range []struct {
		limits    [2]int // limits of two handlers, whose 6 runs each are queued alternately; 0 means no limit
		maxActive int
		locked    []int // which of these 12 runs are locked
		limit     int
		want      []int
	}{
		{limits: [2]int{1, 1}, locked: []int{0}, limit: 10, want: []int{1, 2}},
		{limits: [2]int{3, 1}, locked: []int{0, 2}, limit: 10, want: []int{1, 4, 6, 8}},
		{limits: [2]int{3, 0}, locked: []int{0, 1, 3, 5, 7, 9, 11}, limit: 2, want: []int{2, 4}},
		{limits: [2]int{2, 0}, locked: []int{0}, limit: 4, want: []int{1, 2, 3, 4}},
		{limits: [2]int{6, 6}, locked: []int{0, 1}, limit: 3, want: []int{2, 3, 4}},
		{limits: [2]int{6, 6}, maxActive: 2, locked: []int{0, 1}, limit: 12, want: []int{2, 3}},
		{limits: [2]int{2, 2}, locked: []int{0, 2, 4, 6, 8, 10}, limit: 12, want: []int{1, 3}},
	} {
		d.exec(t, "TRUNCATE "+s.names["attempts"]+", "+s.names["runs"]+", "+s.names["handlers"])
		handlers := []store.Handler{{Name: "a", MaxAttempts: 1, MaxConcurrency: c.limits[0]},
			{Name: "b", MaxAttempts: 1, MaxConcurrency: c.limits[1]}}
		if err := s.Register(t.Context(), "w", handlers, nil, true); err != nil {
			t.Fatal(err)
		}
		if c.maxActive > 0 {
			if err := s.SetHandler(t.Context(), "", store.Override{MaxConcurrency: &c.maxActive}); err != nil {
				t.Fatal(err)
			}
		}
		nth := map[int64]int{}
		var ids []string
		for i := range 12 {
			done, err := s.Insert(t.Context(), nil, store.NewRun{Handler: handlers[i%2].Name})
			if err != nil {
				t.Fatal(err)
			}
			nth[done[0].ID] = i
			if slices.Contains(c.locked, i) {
				ids = append(ids, fmt.Sprint(done[0].ID))
			}
		}
		release := d.hold(t, fmt.Sprintf("SELECT FROM %s WHERE id IN (%s) FOR UPDATE", s.names["runs"],
			strings.Join(ids, ", ")))
		claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: "w", Handlers: handlers, Limit: c.limit,
			TTL: time.Minute})
		var got []int
		for _, run := range claimed.Runs {
			got = append(got, nth[run.ID])
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: claimed %v, %v", c, got, err)
		}
		release()
	}
}

// If another worker claims, fails and requeues a run during a claim, the run still waits for its
// next attempt.
//
// Fails when a claim that has found the run due does not check that again once it has locked the
// row.
func TestRunThatFailsDuringAClaimIsNotDue(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	var ids []int64
	for range 2 {
		done, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, done[0].ID)
	}
	// This pauses the claim after it takes its snapshot and before it locks rows.
	claim := strings.Replace(s.texts["claim"], "FROM clock_timestamp() AS c(at)",
		"FROM pg_advisory_xact_lock(42), clock_timestamp() AS c(at)", 1)
	if claim == s.texts["claim"] {
		t.Fatal("the statement has changed")
	}
	s.texts["claim"] = claim
	release := d.hold(t, "SELECT pg_advisory_xact_lock(42)")
	defer release()
	claimed := make(chan []store.Run, 1)
	go func() {
		runs, err := s.claim(t.Context(), 2)
		if err != nil {
			t.Error(err)
		}
		claimed <- runs
	}()
	pool := d.pool(t, "", "")
	testkit.Eventually(t, testkit.Patience, "the claim stands", func(ctx context.Context) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("it does not wait yet")
		}
		return err
	})
	later := d.hold(t, "SET LOCAL lock_timeout = '5s'", fmt.Sprintf("UPDATE %s SET attempt = 1, "+
		"run_at = now() + interval '1 hour' WHERE id = %d", s.names["runs"], ids[1]), "COMMIT")
	later()
	release()
	if runs := <-claimed; len(runs) != 1 || runs[0].ID != ids[0] {
		t.Errorf("claimed %+v, want the first run only", runs)
	}
}

// A worker works even if handlers use all connections of the application's pool.
func TestHandlersUseAllConnections(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	for range s.pool.Config().MaxConns {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Register(ctx, "w", orders, nil, true); err != nil {
		t.Fatal(err)
	}
	for _, call := range calls(s) {
		switch call.name {
		case "Register", "Materialize", "Due", "Claim", "Renew", "Finish", "Reclaim", "Stats", "Sweep", "Notify":
			if err := call.make(ctx); err != nil {
				t.Error(call.name, err)
			}
		}
	}
}

// When the server does not answer or is gone, a call returns when its context ends. When the server
// is back, the next call works.
func TestLinkThatFails(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t)
	_, p := d.proxy(t)
	s := on(t, d.pool(t, p.Addr(), ""), "durable")
	s.running(t, 1)
	each := func(what string, limit time.Duration) {
		t.Helper()
		late := testkit.MeasureLateness(t, 10*time.Millisecond)
		for _, call := range calls(s) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			err := call.make(ctx)
			cancel()
			if took := time.Since(began); err == nil || took > limit+300*time.Millisecond+late.Since(began) {
				t.Errorf("%s: %s: %v after %v, want an error within %v", what, call.name, err, took, limit)
			}
		}
	}
	p.BlackHole(true)
	each("nobody answers", 50*time.Millisecond)
	p.BlackHole(false)
	p.Cut()
	each("nobody is there", 50*time.Millisecond)
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the link is up again", func() bool { return len(failing(t, s)) == 0 })
}

// If a server is killed in the middle of a call, the call has taken effect completely or not at
// all. If a server hangs, no call waits for longer than its deadline.
func TestServerThatFails(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := sqltest.Postgres(t)
	d := database{server: server, name: server.NewDatabase(t)}
	s := d.migrated(t)
	runs := s.running(t, 50)
	for round := range 5 {
		const limit = time.Second
		ended := make(chan time.Duration, 1)
		go func() {
			for {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				began := time.Now()
				_, err := s.Renew(ctx, "w", keysOf(runs), time.Hour)
				cancel()
				if err != nil {
					ended <- time.Since(began)
					return
				}
			}
		}()
		stop, again := server.Kill, func() error { return server.Restart() }
		if round%2 == 1 {
			stop, again = server.Pause, server.Resume
		}
		late := testkit.MeasureLateness(t, 10*time.Millisecond)
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := <-ended; took > limit+300*time.Millisecond+late.Since(began) {
			t.Errorf("a call that may take %v took %v", limit, took)
		}
		if err := again(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, testkit.Patience, "the server is back", func(ctx context.Context) error {
			renewed, err := s.Renew(ctx, "w", keysOf(runs), time.Hour)
			if err == nil && len(renewed) != len(runs) {
				err = fmt.Errorf("renewed %d of %d", len(renewed), len(runs))
			}
			return err
		})
	}
	results := succeeded(runs)
	for i := range results {
		for n := 0; ; n++ {
			done, err := s.Finish(t.Context(), "w", results[i:i+1])
			if err == nil && len(done.Counted) == 1 {
				break
			}
			if err == nil || n > 100 {
				t.Fatalf("result %d: %+v, %v", i, done, err)
			}
		}
		if i%10 == 5 {
			if err := errors.Join(server.Kill(), server.Restart()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, run := range runs {
		got, attempts, _, err := s.Run(t.Context(), run.ID)
		if err != nil || got.State != store.StateSucceeded || len(attempts) != 1 {
			t.Errorf("%+v, %+v, %v", got, attempts, err)
		}
	}
}
