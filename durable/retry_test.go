package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// By default, a run whose handler fails is tried for three weeks, at least every hour, and its last
// attempt begins after those three weeks. A Requeue gives it another three weeks. The database
// keeps its first 10 and its latest 40 attempts.
//
// Fails when attempts are limited by default, a wait is longer than an hour, or a Requeue does not
// restart the three weeks.
func TestRunIsTriedForThreeWeeks(t *testing.T) {
	testkit.Long(t)
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var began []time.Time
		f.add(durable.Config{PollInterval: time.Hour}).handle("report", func(context.Context, *durable.Run) error {
			began = append(began, time.Now())
			return errors.New("no")
		}, durable.HandlerOptions{}).start()
		id := f.trigger("report", durable.TriggerOptions{})
		for round := range 2 {
			pass(22 * 24 * time.Hour)
			run, attempts := f.run(id)
			if run.State != store.StateDead || len(attempts) != 50 || attempts[10].Attempt != run.Attempt-39 {
				t.Fatalf("round %d: %+v, %d attempts", round, run, len(attempts))
			}
			longest := time.Duration(0)
			for i := range began[1:] {
				longest = max(longest, began[i+1].Sub(began[i]))
			}
			if tried := began[len(began)-1].Sub(began[0]).Round(time.Minute); tried != durable.DefaultMaxElapsedTime ||
				longest > durable.DefaultMaxWait+time.Minute {
				t.Errorf("round %d: the run was tried for %v, at most %v apart", round, tried, longest)
			}
			began = nil
			control := durable.NewStore(f.store).Control()
			if n, err := control.Requeue(t.Context(), durable.RunFilter{}, ann); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		f.end()
	})
}

// If both MaxElapsedTime and MaxAttempts are set, the one that is reached first ends the run.
//
// Fails when one of them is ignored, a wait extends beyond MaxElapsedTime, or an attempt that was
// given back uses up time.
func TestRetryIsBoundedByTimeAndByCount(t *testing.T) {
	for name, c := range map[string]struct {
		retry    durable.Retry
		attempts int
		within   time.Duration
	}{
		"time": {durable.Retry{MaxElapsedTime: 10 * time.Minute, FirstWait: 4 * time.Minute, MaxWait: 4 * time.Minute},
			0, 10 * time.Minute},
		"count": {durable.Retry{MaxElapsedTime: durable.NoLimit, MaxAttempts: 3, FirstWait: 4 * time.Minute},
			3, 12 * time.Minute},
		"both": {durable.Retry{MaxElapsedTime: time.Hour, MaxAttempts: 2, FirstWait: 4 * time.Minute},
			2, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				f.add(durable.Config{}).handle("report", func(context.Context, *durable.Run) error {
					return errors.New("no")
				}, durable.HandlerOptions{Retry: c.retry}).start()
				id := f.trigger("report", durable.TriggerOptions{})
				pass(time.Hour)
				run, attempts := f.run(id)
				span := run.FinishedAt.Sub(attempts[0].StartedAt).Round(time.Second)
				if run.State != store.StateDead || c.attempts > 0 && len(attempts) != c.attempts || span > c.within ||
					c.attempts == 0 && span != c.within {
					t.Errorf("%+v after %v, %d attempts", run, span, len(attempts))
				}
				f.end()
			})
		})
	}
}
