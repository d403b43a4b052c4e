package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// A triggered run is executed once, and a tick runs when it is due.
//
// Fails when a worker only polls.
func TestRunsAndTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var late time.Duration
		h := f.add(durable.Config{PollInterval: time.Minute}).handle("report",
			func(_ context.Context, run *durable.Run) error {
				if run.Schedule != "" {
					late = max(late, time.Since(run.DueAt))
				}
				return nil
			}, durable.HandlerOptions{}).
			schedule("report-often", "report", schedule.Every(7*time.Second), durable.ScheduleOptions{})
		h.start()
		pass(time.Second)
		id, err := h.Trigger(t.Context(), nil, "report", []byte("x"), durable.TriggerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		if run, attempts := f.run(id); run.State != store.StateSucceeded || len(attempts) != 1 {
			t.Errorf("%+v, %+v", run, attempts)
		}
		pass(time.Hour)
		if row := f.ticks("report-often"); row.Queued < 514 || row.Coalesced+row.Skipped+row.PausedTicks != 0 {
			t.Errorf("%+v", row)
		}
		if late > 5*time.Millisecond {
			t.Errorf("a tick started %v late", late)
		}
		f.end()
	})
}

// The defaults match the comments of the fields.
//
// Fails when a default is changed only in the code.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	c, h := durable.Defaults()
	testkit.CheckDefaults(t, ".", map[string]any{
		"Config.MaxRuns": c.MaxRuns, "Config.MaxActive": c.MaxActive, "Config.TTL": c.TTL,
		"Config.PollInterval": c.PollInterval, "Config.PollJitter": c.PollJitter,
		"Config.SweepInterval": c.SweepInterval, "Config.CallTimeout": c.CallTimeout,
		"Config.PreStopDelay": c.PreStopDelay, "Config.DrainTimeout": c.DrainTimeout,
		"Config.MaxDueAge": c.MaxDueAge, "Config.MaxDead": c.MaxDead,
		"HandlerOptions.MaxConcurrency": h.MaxConcurrency, "HandlerOptions.MaxRunTime": h.MaxRunTime,
		"Config.MaxCrashes": c.MaxCrashes, "Retry.MaxElapsedTime": h.Retry.MaxElapsedTime,
		"Retry.MaxAttempts": h.Retry.MaxAttempts, "Retry.FirstWait": h.Retry.FirstWait,
		"Retry.MaxWait": h.Retry.MaxWait, "Retention.Succeeded": c.Retention.Succeeded,
		"Retention.Canceled": c.Retention.Canceled, "Retention.Dead": c.Retention.Dead,
		"Retention.Unseen": c.Retention.Unseen,
	})
	if c.ClaimBatch != c.MaxRuns || c.MaterializeInterval != c.PollInterval || c.ClaimInterval != c.PollInterval ||
		c.ReclaimInterval != c.PollInterval || c.Retention.Succeeded != c.Retention.Canceled {
		t.Errorf("defaults that depend on other fields: %+v", c)
	}
}
