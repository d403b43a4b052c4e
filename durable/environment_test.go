package durable_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

var errRefused = errors.New("the store belongs to others")

// If a process belongs to another environment than the fleet, its worker registers nothing and
// claims no run. The errors of Run, Ready and Started say why.
//
// Fails when the worker does not ask the registry, or asks only after it has called the database.
func TestWorkerOfAnotherEnvironment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		rows := cluster.NewMemoryStore()
		registry := func(environment string) *cluster.Registry {
			r, err := cluster.New(cluster.Config{Store: rows, Environment: environment,
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = registry("production").Run(ctx) }()
		ids := []int64{f.trigger("report", durable.TriggerOptions{}), f.trigger("report", durable.TriggerOptions{})}
		pass(time.Second)
		h := f.add(durable.Config{PreStopDelay: time.Hour}).handle("report", sleeps(0), durable.HandlerOptions{}).
			schedule("minutely", "report", everyMinute, durable.ScheduleOptions{})
		h.replaced = true
		registry("staging").Add(h)
		h.start()
		pass(10 * time.Minute)
		var err error
		select {
		case err = <-h.ended:
			h.ended <- err
		default:
			t.Error("it runs")
		}
		for what, err := range map[string]error{"Run": err, "Ready": h.Ready(), "Started": h.Started()} {
			if err == nil || !strings.Contains(err.Error(), `belongs to environment "production"`) {
				t.Errorf("%s says %v", what, err)
			}
		}
		if schedules, err := f.store.Schedules(t.Context()); err != nil || len(schedules) > 0 {
			t.Errorf("the worker has registered %v, %v", schedules, err)
		}
		if n := len(f.runs(store.StateQueued)); n != len(ids) {
			t.Errorf("%d of %d runs are left", n, len(ids))
		}
		f.end()
	})
}

// A worker that is refused while it is running claims no further run. It waits for runs in progress
// as it does at shutdown, but without PreStopDelay.
//
// Fails when a run is claimed after that, or a run in progress is cut off.
func TestWorkerThatIsRefusedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{PreStopDelay: time.Hour}).handle("report", sleeps(10*time.Second),
			durable.HandlerOptions{})
		h.replaced = true
		var refuse func(error)
		h.AdmitBy(func(_ context.Context, refused func(error)) (stop func(), err error) {
			refuse = refused
			return func() {}, nil
		})
		h.start()
		first := f.trigger("report", durable.TriggerOptions{})
		pass(6 * time.Second) // longer than a poll interval
		refuse(errRefused)
		second := f.queue("report", durable.TriggerOptions{})
		pass(time.Minute)
		select {
		case err := <-h.ended:
			if h.ended <- err; !errors.Is(err, errRefused) || !errors.Is(h.Ready(), errRefused) {
				t.Errorf("Run returns %v, Ready says %v", err, h.Ready())
			}
		default:
			t.Error("it runs")
		}
		if run, _ := f.run(first); run.State != store.StateSucceeded {
			t.Errorf("the run that continued: %+v", run)
		}
		if run, _ := f.run(second); run.State != store.StateQueued {
			t.Errorf("a later run: %+v", run)
		}
		f.end()
	})
}
