package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// After the database's clock was ahead and is set right, workers notice within a minute, and every
// schedule has runs again within that minute plus its own interval. That includes a schedule that
// was registered while the clock was ahead. A pause that ended during that time stays ended.
//
// Fails when Register trusts a seen_at that lies in the future.
func TestDatabaseClockWasAhead(t *testing.T) {
	for _, by := range []time.Duration{10 * time.Minute, 2 * time.Hour, 400 * 24 * time.Hour} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
					schedule("old", "report", everyMinute, durable.ScheduleOptions{})
				h.start()
				pass(5 * time.Minute)
				f.store.AdvanceClock(by)
				second := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
					schedule("new", "report", everyMinute, durable.ScheduleOptions{})
				second.start()
				for _, left := range []time.Duration{time.Hour, 0} { // paused, and resumed
					if err := f.store.SetSchedule(t.Context(), "old", store.Override{PausedUntil: &left}); err != nil {
						t.Fatal(err)
					}
					pass(30 * time.Second)
				}
				pass(5*time.Minute + 17*time.Second)
				queued := func() map[string]int64 {
					of := map[string]int64{}
					for _, row := range must(f.store.Schedules(t.Context())) {
						of[row.Name] = row.Queued
					}
					return of
				}
				f.store.AdvanceClock(-by)
				before := queued()
				pass(2*time.Minute + 30*time.Second)
				for name, n := range queued() {
					if n == before[name] {
						t.Errorf("%s has no run after its clock was corrected: %d before", name, n)
					}
				}
				f.end()
			})
		})
	}
}
