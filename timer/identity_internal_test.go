package timer

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// Stores keep the ID of a schedule, so it must not change with a new version of Go or of this
// module. Different schedules have different IDs.
//
// Fails when scheduleID hashes the text for people.
func TestScheduleIDIsKept(t *testing.T) {
	nightly := schedule.Cron("0 2 * * *", "")
	if got, want := scheduleID(nightly), int64(1206863199325030075); got != want {
		t.Errorf("the ID of a schedule is %d, and was %d: stores keep the old one", got, want)
	}
	if scheduleID(nil) != 0 {
		t.Error("no schedule has a number")
	}
	dates := func(last string) schedule.Schedule {
		return schedule.Except(nightly, schedule.Dates("", "2026-01-01", "2026-01-02", "2026-01-03", last))
	}
	for _, other := range []schedule.Schedule{schedule.Every(time.Hour), schedule.Daily("02:00", ""),
		dates("2026-01-04")} {
		if scheduleID(other) == scheduleID(nightly) {
			t.Errorf("%v has the ID of %v", other, nightly)
		}
	}
	if scheduleID(dates("2026-01-04")) == scheduleID(dates("2026-01-05")) {
		t.Error("a different date has the same ID")
	}
	if one, same := scheduleID(dates("2026-01-04")), scheduleID(dates("2026-01-04")); one != same {
		t.Error("the same dates have a different ID")
	}
}
