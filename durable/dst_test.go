package durable_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/schedule"
)

// On nights when clocks change, each tick of the schedule has its run, even if no worker was
// running that night.
//
// Fails when the ticks that are caught up differ from those that came due.
func TestNightsInWhichClocksChange(t *testing.T) {
	for night, before := range map[string]time.Time{
		"an hour less": time.Date(2000, 3, 24, 23, 0, 0, 0, time.UTC),
		"an hour more": time.Date(2000, 10, 27, 22, 0, 0, 0, time.UTC),
	} {
		for spec, s := range map[string]schedule.Schedule{
			"daily":              schedule.Daily("02:30", "Europe/Berlin"),
			"cron":               schedule.Cron("15,45 1-3 * * *", "Europe/Berlin"),
			"cron, every minute": schedule.Cron("*/10 * * * *", "Europe/Berlin"),
		} {
			for _, away := range []bool{false, true} {
				t.Run(night+", "+spec, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						f := newFleet(t)
						pass(time.Until(before))
						catchUp := durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 10_000}
						start := func() *host {
							return f.add(durable.Config{PollInterval: time.Hour}).
								handle("report", sleeps(0), durable.HandlerOptions{}).
								schedule("report", "report", s, durable.ScheduleOptions{CatchUp: catchUp}).start()
						}
						h := start()
						pass(20 * time.Hour)
						if away {
							_ = h.stop()
						}
						pass(24 * time.Hour)
						if away {
							start()
						}
						pass(24 * time.Hour)
						first, err := schedule.Next(s, before)
						if err != nil {
							t.Fatal(err)
						}
						row := f.accounted("report", s, first)
						if row.Queued == 0 || row.Skipped+row.Coalesced != 0 {
							t.Errorf("%+v", row)
						}
						f.end()
					})
				})
			}
		}
	}
}
