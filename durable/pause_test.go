package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// Ticks that come due during a pause count as paused and are not caught up.
//
// Fails when the ticks of a pause are caught up, or not counted.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
			schedule("often", "report", everyMinute, durable.ScheduleOptions{}).start()
		pass(time.Second)
		first := f.ticks("often").NextDueAt
		pass(10 * time.Minute)
		for _, pause := range []time.Duration{time.Hour, 0} {
			err := f.store.SetSchedule(t.Context(), "often", store.Override{PausedUntil: &pause,
				By: store.Cause{By: "me"}})
			if err != nil {
				t.Fatal(err)
			}
			pass(20 * time.Minute)
		}
		if row := f.accounted("often", everyMinute, first); row.PausedTicks != 20 || row.Queued != 30 {
			t.Errorf("%+v", row)
		}
		f.end()
	})
}

// A tick belongs to a pause if it comes due during the pause, no matter when a worker polls.
//
// Fails when ticks of a pause that no worker has seen are caught up, or when ticks before or after
// the pause count as paused.
func TestPauseThatNoWorkerSees(t *testing.T) {
	backfill := durable.CatchUp{Policy: durable.CatchUpBackfill}
	for _, c := range []struct {
		what    string
		catchUp durable.CatchUp
		// How long no worker runs: before the pause, during it, and after it.
		before, pause, after               time.Duration
		queued, coalesced, skipped, paused int64
	}{
		{"after it began", backfill, 0, 30 * time.Minute, 5 * time.Minute, 5, 0, 0, 30},
		{"before it began", backfill, 5 * time.Minute, 30 * time.Minute, 0, 5, 0, 0, 30},
		{"on both sides", backfill, 5 * time.Minute, 30 * time.Minute, 7 * time.Minute, 12, 0, 0, 30},
		{"more than a plan has", backfill, 70 * time.Minute, 30 * time.Minute, 50 * time.Minute, 101, 0, 19, 30},
		{"more than a plan has before it", durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 1000},
			250 * time.Minute, 30 * time.Minute, 150 * time.Minute, 400, 0, 0, 30},
		{"coalesce", durable.CatchUp{}, 5 * time.Minute, 30 * time.Minute, 7 * time.Minute, 1, 11, 0, 30},
		{"coalesce those before", durable.CatchUp{}, 5 * time.Minute, 30 * time.Minute, 0, 1, 4, 0, 30},
		{"skip", durable.CatchUp{Policy: durable.CatchUpSkip}, 5 * time.Minute, 30 * time.Minute, 2 * time.Minute,
			1, 0, 6, 30},
		{"nothing else", durable.CatchUp{}, 0, 30 * time.Minute, 0, 0, 0, 0, 30},
	} {
		for _, resumed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, resumed %t", c.what, resumed), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					add := func() *host {
						return f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
							schedule("often", "report", everyMinute,
								durable.ScheduleOptions{CatchUp: c.catchUp}).start()
					}
					set := func(pause time.Duration) {
						err := f.store.SetSchedule(t.Context(), "often", store.Override{PausedUntil: &pause})
						if err != nil {
							t.Fatal(err)
						}
					}
					h := add()
					pass(time.Second)
					first := f.ticks("often").NextDueAt
					pass(time.Until(first) + 30*time.Second)
					was := f.ticks("often")
					h.stop()
					pass(c.before)
					if resumed {
						set(time.Hour)
						pass(c.pause)
						set(0)
					} else {
						set(c.pause)
						pass(c.pause)
					}
					pass(c.after)
					add()
					pass(10 * time.Second)
					row := f.accounted("often", everyMinute, first)
					if row.Queued-was.Queued != c.queued || row.Coalesced-was.Coalesced != c.coalesced ||
						row.Skipped-was.Skipped != c.skipped || row.PausedTicks != c.paused {
						t.Errorf("%+v, but it was %+v before", row, was)
					}
					f.end()
				})
			})
		}
	}
}
