package durable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// Two workers together start as many attempts of a handler as its rate allows, including retries.
// No window of length Per has more, no matter when it begins. The workers wake when the next start
// is allowed.
//
// Fails when each worker counts only its own starts, a retry does not count, or a worker waits for
// its next poll to start a run.
func TestRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			rate int
			per  time.Duration
		}{{7, 10 * time.Second}, {100, time.Minute}} {
			f := newFleet(t)
			var starts []time.Time
			handle := func(_ context.Context, run *durable.Run) error {
				f.watch.mu.Lock()
				starts = append(starts, time.Now())
				f.watch.mu.Unlock()
				if run.Attempt == 1 && run.ID%3 == 0 {
					return durable.RetryAfter(time.Millisecond, errors.New("the printer is busy"))
				}
				return nil
			}
			for range 2 {
				f.add(durable.Config{PollInterval: 5 * time.Minute, MaxRuns: c.rate}).
					handle("mail", handle, durable.HandlerOptions{Rate: c.rate, Per: c.per}).start()
			}
			for range 9 * c.rate { // 12 with retries
				f.trigger("mail", durable.TriggerOptions{})
			}
			began := time.Now()
			pass(5*time.Minute + 12*c.per*60/59)
			f.end()
			if left := f.runs(store.StateQueued, store.StateRunning, store.StateDead); len(left) > 0 ||
				len(starts) != 12*c.rate {
				t.Fatalf("%d runs are left after %d starts", len(left), len(starts))
			}
			slices.SortFunc(starts, time.Time.Compare)
			for i := c.rate; i < len(starts); i++ {
				if within := starts[i].Sub(starts[i-c.rate]); within < c.per {
					t.Fatalf("%d starts within %v, beginning at %v", c.rate+1, within, starts[i-c.rate].Sub(began))
				}
			}
			first, last := starts[0], starts[len(starts)-1]
			if took := last.Sub(first); took > 11*c.per*100/95 {
				t.Errorf("%d starts took %v", len(starts), took)
			}
		}
	})
}

// A rate that is out of bounds or has no Per is refused, with an error that says how to fix it.
//
// Fails when a rate is accepted that the database cannot enforce.
func TestFaultsOfARate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate int
		per  time.Duration
		want string
	}{
		{0, 0, ""},
		{1, 100 * time.Millisecond, ""},
		{1_000_000_000, 30 * 24 * time.Hour, ""},
		{0, time.Minute, `durable: handler "h": Rate: 0: use 1 to 1000000000, or 0 and no Per`},
		{-1, time.Minute, `durable: handler "h": Rate: -1: use 1 to 1000000000, or 0 and no Per`},
		{1_000_000_001, time.Minute, `durable: handler "h": Rate: 1000000001: use 1 to 1000000000, or 0 and no Per`},
		{1, 0, `durable: handler "h": Per: 0s: use 100ms to 720h0m0s, or 0 and no Rate`},
		{1, time.Millisecond, `durable: handler "h": Per: 1ms: use 100ms to 720h0m0s, or 0 and no Rate`},
		{1, 721 * time.Hour, `durable: handler "h": Per: 721h0m0s: use 100ms to 720h0m0s, or 0 and no Rate`},
		{1, -time.Hour, `durable: handler "h": Per: -1h0m0s: use 100ms to 720h0m0s, or 0 and no Rate`},
	} {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("h", sleeps(0), durable.HandlerOptions{Rate: c.rate, Per: c.per})
		if err := h.Check(); err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%d per %v: %v\nwant %s", c.rate, c.per, err, c.want)
		}
	}
}

// After the database's clock was set back by an hour, earlier starts count for one more window but
// no longer.
//
// Fails when a handler waits until the clock has caught up, or its starts are forgotten.
func TestRateWhenTheClockIsSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.store.AdvanceClock(time.Hour)
		f.add(durable.Config{}).handle("mail", sleeps(0), durable.HandlerOptions{Rate: 3, Per: time.Minute}).start()
		trigger := func(n int) {
			for range n {
				f.trigger("mail", durable.TriggerOptions{RunAt: time.Now().Add(-2 * time.Hour)})
			}
		}
		trigger(4)
		pass(10 * time.Second)
		f.store.AdvanceClock(-time.Hour)
		for _, c := range []struct {
			after time.Duration
			ended int
		}{{50 * time.Second, 3}, {20 * time.Second, 4}} {
			pass(c.after)
			if n := len(f.runs(store.StateSucceeded)); n != c.ended {
				t.Errorf("%d runs have ended, want %d", n, c.ended)
			}
		}
		f.end()
	})
}
