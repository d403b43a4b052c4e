package durable_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// From the first burst on, each of four workers gets its share of the runs of a handler with a
// limit. When one worker is killed, the others get its share as soon as its leases have ended, even
// if two of them are away. No place stays free while a run waits for more than three poll
// intervals.
//
// Fails when the worker that polls first takes all runs, or a place is kept for a worker that is
// gone.
func TestLimitIsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		const limit, poll = 10, 5 * time.Second
		for range 4 {
			f.add(durable.Config{PollInterval: poll}).handle("report", sleeps(3*time.Second),
				durable.HandlerOptions{MaxConcurrency: limit}).start()
		}
		pass(10 * time.Second)
		running := func() (all int, of map[string]int) {
			of = map[string]int{}
			for _, r := range f.runs(store.StateRunning) {
				of[r.Worker]++
				all++
			}
			return all, of
		}
		for range 700 {
			f.trigger("report", durable.TriggerOptions{})
		}
		if _, err := f.hosts[0].Trigger(t.Context(), nil, "report", nil, durable.TriggerOptions{}); err != nil {
			t.Fatal(err)
		}
		const share = 3 // of 10 for 4
		for i := range 40 {
			pass(500 * time.Millisecond)
			all, of := running()
			for name, n := range of {
				if n > share {
					t.Errorf("after %d half seconds, %s has %d of %d", i, name, n, all)
				}
			}
			if all != limit && i > 0 {
				t.Errorf("after %d half seconds, %d are running: %v", i, all, of)
			}
		}
		f.hosts[3].kill()
		pass(durable.DefaultTTL + 3*poll)
		for range 10 {
			pass(500 * time.Millisecond)
			if all, of := running(); all != limit || len(of) != 3 || of[f.hosts[0].name] > 4 {
				t.Errorf("after one worker was killed, %d are running: %v", all, of)
			}
		}
		f.hosts[1].kill()
		f.hosts[2].kill()
		pass(durable.DefaultTTL + 3*poll)
		for range 10 {
			pass(500 * time.Millisecond)
			if all, of := running(); all != limit {
				t.Errorf("after three workers were killed, %d are running: %v", all, of)
			}
		}
		for left := 1; left > 0; left = len(f.runs(store.StateQueued, store.StateRunning)) {
			pass(time.Minute)
		}
		f.end()
	})
}
