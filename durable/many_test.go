package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/schedule"
)

// If a deploy adds many schedules that come due at the same time, they are registered and planned
// page by page, in calls of bounded size. A schedule that belongs to another worker, or fails, does
// not hold up the schedules after it.
//
// Fails when a call contains all schedules, so that it times out, or when the schedules after the
// first page have no ticks.
func TestManySchedules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const schedules = 2500
		f := newFleet(t)
		start := time.Now()
		stranger := f.add(durable.Config{}).handle("strange", sleeps(0), durable.HandlerOptions{})
		h := f.add(durable.Config{MaxRuns: 1000}).handle("report", sleeps(0), durable.HandlerOptions{})
		for i := range schedules {
			stranger.schedule(fmt.Sprint("a", i), "strange", everyMinute, durable.ScheduleOptions{})
			h.schedule(fmt.Sprint("b", i), "report", everyMinute, durable.ScheduleOptions{})
		}
		stranger.start()
		pass(10 * time.Second)
		stranger.kill() // its schedules come due, and no worker plans them
		h.start()
		pass(time.Until(start.Add(time.Minute + 30*time.Second)))
		for _, row := range must(f.store.Schedules(t.Context())) {
			if want := row.Name[0] == 'b'; (row.Queued == 1) != want {
				t.Fatalf("%s has %d ticks", row.Name, row.Queued)
			}
		}
		if due, registered := h.link.most["due"], h.link.most["register"]; due > 1000 || registered > 1000 {
			t.Errorf("one call returned %d due schedules, and one registered %d", due, registered)
		}
		if n := h.link.count("due"); n > 150 {
			t.Errorf("%d calls", n)
		}
		f.end()
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// After a deploy with many schedules that come due together (20,000 in the long test), each has its
// run on Postgres.
//
// Fails when a call grows with the number of schedules, so that it times out.
func TestDeployWithManySchedules(t *testing.T) {
	t.Parallel()
	schedules := testkit.Rounds(t, 500, 20_000)
	server := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}})
	pool, err := pgxpool.New(t.Context(), server.DSN("", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	runs := pgxdurable.New(pool, durable.Options{})
	if err := runs.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker, err := durable.NewWorker(runs, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("none", sleeps(0), durable.HandlerOptions{})
	err = runs.Control().Pause(t.Context(), "none", time.Now().Add(time.Hour), driver.Cause{By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	// late enough for a slow machine to register all schedules: an instant in the past has no run
	due := schedule.At(time.Now().Add(time.Duration(15+schedules/1000) * time.Second))
	for i := range schedules {
		worker.Schedule(fmt.Sprint("schedule", i), "none", due, durable.ScheduleOptions{})
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	testkit.Eventually(t, 3*time.Minute, "each schedule has its run", func(ctx context.Context) error {
		var queued int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM tickslot_durable_runs").Scan(&queued)
		if err == nil && queued != schedules {
			err = fmt.Errorf("%d of %d", queued, schedules)
		}
		return err
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
