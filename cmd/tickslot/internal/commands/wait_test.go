package commands_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A trigger that waits prints how its run has ended: ID, outcome and error. The exit code is 1 if
// the run failed or has not ended in time.
//
// Fails when it reports the run of another trigger or of a tick, or when it waits too long.
func TestTriggerWaits(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	db := open(t, file)
	quiet := slog.New(slog.DiscardHandler)
	registry, err := cluster.New(cluster.Config{Store: sqlregistry.SQLite(db, sqlregistry.Options{}), Logger: quiet,
		TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	timers, err := timer.New(timer.Config{Store: sqllock.SQLite(db, sqllock.Options{}), Holder: registry.Holder(),
		Hooks: clustertimer.Hooks(registry, timer.Hooks{}), Logger: quiet, TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	add := func(name string, run func(context.Context) error) {
		if err := timers.Register(timer.Timer{Name: name, Schedule: schedule.Every(time.Hour), MaxConcurrency: 1,
			MaxPerTick: 1, Run: run}); err != nil {
			t.Fatal(err)
		}
	}
	add("well", func(context.Context) error { return nil })
	add("fails", func(context.Context) error { return errors.New("no paper") })
	add("stuck", func(ctx context.Context) error {
		select {
		case <-stuck:
		case <-ctx.Done():
		}
		return nil
	})
	registry.Add(timers)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- registry.Run(ctx) }()
	go func() { ended <- timers.Run(ctx) }()
	defer func() {
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}()
	<-timers.Running()
	testkit.Eventually(t, testkit.Patience, "the host is in the registry", func() bool {
		return strings.Contains(tickslot(t, url, "timers", "ls").out, "stuck")
	})
	triggered := func(command string, code int, texts ...string) {
		t.Helper()
		a := tickslot(t, url, strings.Fields("trigger "+command+" --wait")...)
		if a.code != code {
			t.Errorf("%s: exit code %d: %s", command, a.code, a)
		}
		for _, text := range texts {
			if !strings.Contains(a.String(), text) {
				t.Errorf("%s lacks %q: %s", command, text, a)
			}
		}
	}
	for range 2 {
		triggered("well --timeout 1m", 0, "timer well: triggered", "run 0-", ": ok in ")
		triggered("fails --timeout 1m", 1, "run 0-", ": error in ", "no paper")
	}
	triggered("stuck --timeout 1s", 1, "it is triggered, but its run is not known to have ended within 1s",
		`"tickslot explain stuck"`)
	close(stuck)

	store := durable.SQLite(db, durable.Options{})
	worker, err := durable.NewWorker(store, durable.Config{Logger: quiet, PollInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("mail", func(_ context.Context, r *durable.Run) error {
		if string(r.Payload) == "bad" {
			return durable.Permanent(errors.New("no such street"))
		}
		return nil
	}, durable.HandlerOptions{})
	until(t, worker.Run, func() bool {
		if !strings.Contains(tickslot(t, url, "durable", "handlers").out, "mail") {
			return false
		}
		triggered("mail --durable --timeout 1m", 0, "queued run ", ": succeeded after 1 attempts")
		triggered("mail --durable --timeout 1m --payload bad", 1, ": dead after 1 attempts", "no such street")
		return true
	})
	triggered("mail --durable --timeout 1s", 1, "it is triggered, but its run is not known", `"tickslot durable ls"`)
}
