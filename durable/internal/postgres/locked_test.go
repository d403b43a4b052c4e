package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/testkit"
)

// While another session keeps a table locked, calls fail when their context ends.
func TestTableThatIsLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	s.running(t, 1)
	release := d.hold(t, "LOCK TABLE "+s.names["runs"]+", "+s.names["handlers"]+", "+s.names["schedules"])
	defer release()
	late := testkit.MeasureLateness(t, 10*time.Millisecond)
	for _, call := range calls(s) {
		if call.name == "Verify" || call.name == "Notify" {
			continue
		}
		const limit = 150 * time.Millisecond
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := call.make(ctx)
		cancel()
		if took := time.Since(began); err == nil || took > limit+200*time.Millisecond+late.Since(began) {
			t.Errorf("%s: %v after %v, want an error within %v", call.name, err, took, limit)
		}
	}
	release()
	if failed := failing(t, s); len(failed) > 0 {
		t.Error(failed)
	}
}

// A transaction that waits for a lock ends when the time-out of its call expires, even if its
// client has lost the connection and cannot cancel it.
//
// Fails when the server waits without a limit.
func TestClientThatIsCutOffWhileItWaits(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t)
	_, p := d.proxy(t)
	s := on(t, d.pool(t, p.Addr(), ""), "durable")
	renew := func(ctx context.Context) error {
		_, err := s.Renew(ctx, "w", []store.RunKey{{ID: 1, Attempt: 1}}, time.Minute)
		return err
	}
	if err := renew(t.Context()); err != nil { // prepares the statements outside a transaction
		t.Fatal(err)
	}
	release := d.hold(t, "LOCK TABLE "+s.names["runs"])
	defer release()
	pool := d.pool(t, "", "")
	waiting := func(ctx context.Context, want int) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "+
			"AND wait_event_type = 'Lock'").Scan(&n)
		if err == nil && n != want {
			err = fmt.Errorf("%d transactions wait, want %d", n, want)
		}
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		ended <- renew(ctx)
	}()
	testkit.Eventually(t, testkit.Patience, "the call waits for the lock",
		func(ctx context.Context) error { return waiting(ctx, 1) })
	p.BlackHole(true)
	if err := <-ended; err == nil {
		t.Error("the call has succeeded")
	}
	testkit.Eventually(t, 10*time.Second, "nobody waits for the lock",
		func(ctx context.Context) error { return waiting(ctx, 0) })
}

// If a client stops after it has sent the first half of a call, it holds the locks of that half
// only until the time-out of the call expires.
//
// Fails when the idle time of a transaction is not bounded.
func TestClientThatStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	s.running(t, 1)
	conn, err := pgx.Connect(t.Context(), d.server.DSN("", "", d.name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	limited := []store.Handler{{Name: "orders", MaxAttempts: 3, MaxConcurrency: 5}}
	var half pgx.Batch
	brief, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	half.Queue(sqlkit.PostgresBegin)
	text, args := sqlkit.PostgresPinned(brief)
	half.Queue(text, args...)
	half.Queue(s.texts["claim_lock"], handlersJSON(limited), 0, 0)
	if err := conn.SendBatch(t.Context(), &half).Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = s.Claim(ctx, store.ClaimRequest{Worker: "w", Handlers: limited, Limit: 1, TTL: time.Minute})
	if err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("Claim took %v: it did not wait for the lock", took)
	}
}

// Another session keeps the row of a limit locked, in any mode. The limited runs wait, and all
// others are claimed. When the row is free, the limited runs are claimed, too.
//
// Fails when a claim waits for the rows of limits until its time-out, and then claims nothing.
func TestLimitThatIsLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	handlers := []store.Handler{{Name: "free", MaxAttempts: 1}, {Name: "limited", MaxAttempts: 1, MaxConcurrency: 5}}
	if err := s.Register(t.Context(), "w", handlers, nil, true); err != nil {
		t.Fatal(err)
	}
	of := func(name string) string {
		return "SELECT FROM " + s.names["handlers"] + " WHERE name = '" + name + "' "
	}
	for _, c := range []struct {
		lock      string
		maxActive int
		want      []string // the handlers whose runs are claimed
		locked    string
	}{
		{of("limited") + "FOR UPDATE", 0, []string{"free"}, "limited"},
		{of("limited") + "FOR KEY SHARE", 0, []string{"free"}, "limited"},
		{"UPDATE " + s.names["handlers"] + " SET seen_at = now() WHERE name = 'limited'", 0,
			[]string{"free"}, "limited"},
		{of("free") + "FOR UPDATE", 0, []string{"free", "limited"}, ""},
		{of("") + "FOR UPDATE", 100, nil, ""},
		{of("") + "FOR UPDATE", 0, []string{"free", "limited"}, ""},
	} {
		d.exec(t, "TRUNCATE "+s.names["attempts"]+", "+s.names["runs"])
		for _, h := range handlers {
			if _, err := s.Insert(t.Context(), nil, store.NewRun{Handler: h.Name}); err != nil {
				t.Fatal(err)
			}
		}
		claim := func() (names, locked []string) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the default of durable.Config.CallTimeout
			defer cancel()
			claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: "w", Handlers: handlers, Limit: 10,
				MaxActive: c.maxActive, TTL: time.Minute})
			if err != nil {
				t.Errorf("%s: %v", c.lock, err)
			}
			for _, run := range claimed.Runs {
				names = append(names, run.Handler)
			}
			slices.Sort(names)
			return names, claimed.Locked
		}
		release := d.hold(t, c.lock)
		names, locked := claim()
		if !slices.Equal(names, c.want) || (len(locked) > 0) != (len(names) < 2) ||
			len(locked) > 0 && locked[0] != c.locked {
			t.Errorf("%s, MaxActive %d: %q were claimed, %q are locked", c.lock, c.maxActive, names, locked)
		}
		release()
		if rest, locked := claim(); len(names)+len(rest) != 2 || len(locked) > 0 {
			t.Errorf("%s: then %q were claimed, and %q are locked", c.lock, rest, locked)
		}
	}
}

// Many queued runs that another session keeps locked do not delay other runs, with and without a
// limit on their handler.
//
// Fails when a claim reads only the first due runs, all of which may be locked.
func TestManyRunsThatAreLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	const lockedRuns = 1000
	for _, limit := range []int{0, 5} {
		handlers := []store.Handler{{Name: "orders", MaxAttempts: 1, MaxConcurrency: limit}}
		d.exec(t, "TRUNCATE "+s.names["attempts"]+", "+s.names["runs"],
			fmt.Sprintf("INSERT INTO %s (handler, run_at) SELECT 'orders', now() - interval '1 h' + "+
				"i * interval '1 ms' "+
				"FROM generate_series(1, %d) AS i", s.names["runs"], lockedRuns+20))
		if err := s.Register(t.Context(), "w", handlers, nil, true); err != nil {
			t.Fatal(err)
		}
		release := d.hold(t, fmt.Sprintf("SELECT FROM (SELECT FROM %s ORDER BY run_at LIMIT %d FOR UPDATE) AS x",
			s.names["runs"], lockedRuns))
		claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: "w", Handlers: handlers, Limit: 5,
			TTL: time.Minute})
		if err != nil || len(claimed.Runs) != 5 {
			t.Errorf("limit %d: %d of the 20 unlocked runs were claimed, want 5: %v", limit,
				len(claimed.Runs), err)
		}
		release()
	}
}
