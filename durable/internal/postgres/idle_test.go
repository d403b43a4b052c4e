package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Each poll of an idle worker is one round trip with the same number of statements, whether the
// worker has one schedule or a thousand: BEGIN, the settings, COMMIT, and the statements counted
// here. durable.TestIdleWorkerOnlyPolls shows how often a worker polls. So with the default
// intervals, a worker sends 185 statements in 40 round trips per minute: 12 each for runs, for
// ticks and for expired leases, two for health, and one each to register and to sweep. The pings of
// the listening connection do not count as statements.
//
// Fails when a poll takes one statement for each schedule, or more statements than it needs.
func TestIdlePollsAreFewStatements(t *testing.T) {
	t.Parallel()
	const frame = 3 // BEGIN, the settings, COMMIT
	perMinute := map[string]int64{"Claim": 12, "Due": 12, "Reclaim": 12, "Stats": 2, "Register": 1, "Sweep": 1}
	want := map[string]int64{"Claim": 3, "Due": 1, "Reclaim": 1, "Stats": 1, "Register": 2, "Sweep": 1}
	for _, schedules := range []int{1, 1000} {
		d := newDatabase(t)
		d.migrated(t)
		wire := d.server.NewCountingProxy(t)
		s := on(t, d.pool(t, wire.Addr(), ""), "durable")
		list := far(schedules)
		polls := idlePolls(s, list)
		if err := s.Register(t.Context(), "w", orders, list, true); err != nil {
			t.Fatal(err)
		}
		d.exec(t, "UPDATE "+s.names["schedules"]+" SET next_spec = spec, next_due_at = now() + interval '1 year'")
		var statements, trips int64
		for name, poll := range polls {
			if err := poll(t.Context()); err != nil { // connects and prepares
				t.Fatal(name, err)
			}
			statementsBefore, tripsBefore := wire.Statements(), wire.RoundTrips()
			if err := poll(t.Context()); err != nil {
				t.Fatal(name, err)
			}
			asked, waited := wire.Statements()-statementsBefore, wire.RoundTrips()-tripsBefore
			if asked != frame+want[name] || waited != 1 {
				t.Errorf("%d schedules: %s is %d statements and %d round trips, want %d and 1", schedules, name, asked,
					waited, frame+want[name])
			}
			statements, trips = statements+asked*perMinute[name], trips+waited*perMinute[name]
		}
		if statements != 185 || trips != 40 {
			t.Errorf("%d schedules: %d statements and %d round trips per minute, want 185 and 40", schedules,
				statements, trips)
		}
	}
}

// far returns n schedules with distinct names.
func far(n int) []store.Schedule {
	list := make([]store.Schedule, n)
	for i := range list {
		list[i] = store.Schedule{Name: sqltest.Unique("far"), Handler: "orders", Spec: "1"}
	}
	return list
}

// idlePolls returns the calls that a worker makes while there is nothing to do.
func idlePolls(s *Store, schedules []store.Schedule) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Claim":   func(ctx context.Context) error { _, err := s.claim(ctx, 16); return err },
		"Due":     func(ctx context.Context) error { _, err := s.Due(ctx, store.DueSchedule{}, 1000); return err },
		"Reclaim": func(ctx context.Context) error { _, err := s.Reclaim(ctx, 100, 5); return err },
		"Stats":   func(ctx context.Context) error { _, err := s.Stats(ctx, time.Minute); return err },
		"Register": func(ctx context.Context) error {
			return s.Register(ctx, "w", orders, schedules, false)
		},
		"Sweep": func(ctx context.Context) error {
			_, err := s.Sweep(ctx, store.Retention{Succeeded: time.Hour, Dead: time.Hour, Canceled: time.Hour,
				Unseen: time.Hour}, 1000)
			return err
		},
	}
}

// Workers that have the same schedules together write the rows twice a minute, no matter how many
// workers there are. Each worker also writes them once when it starts.
//
// Fails when each worker writes all rows each minute, or when no worker writes rows that have
// become old.
func TestWorkersOfTheSameSchedulesWriteThemOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	list := far(10)
	register := func(takeOver bool, want int) {
		t.Helper()
		var before, after []string
		read := func() (versions []string) {
			rows, err := s.pool.Query(t.Context(), "SELECT ctid::text FROM "+s.names["schedules"]+" ORDER BY name")
			if err == nil {
				versions, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			if err != nil {
				t.Fatal(err)
			}
			return versions
		}
		before = read()
		if err := s.Register(t.Context(), "w", orders, list, takeOver); err != nil {
			t.Fatal(err)
		}
		after = read()
		written := len(after) - len(before)
		for i := range before {
			if before[i] != after[i] {
				written++
			}
		}
		if written != want {
			t.Errorf("%d rows were written, want %d", written, want)
		}
	}
	register(false, 10)
	register(false, 0)
	register(true, 10)
	d.exec(t, "UPDATE "+s.names["schedules"]+" SET seen_at = seen_at - interval '31 s' WHERE name <> '"+
		list[0].Name+"'")
	register(false, 9)
	register(false, 0)
}
