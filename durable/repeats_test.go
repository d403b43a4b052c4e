package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// A lockedSchedule is a store in which another session briefly locks the row of a schedule when its
// tick is due.
type lockedSchedule struct {
	store.Store
	left int // how many more times the row is locked
}

func (l *lockedSchedule) Materialize(ctx context.Context, plans []store.Plan) ([]store.Materialized, error) {
	if len(plans[0].Runs) > 0 && l.left > 0 {
		l.left--
		return nil, nil
	}
	return l.Store.Materialize(ctx, plans)
}

// If the row of a schedule is locked when its tick comes due, for example by a registration, the
// tick does not wait for a poll.
//
// Fails when a worker assumes that another worker was faster.
func TestTickWhoseScheduleIsLocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{PollInterval: 24 * time.Hour, MaxDueAge: durable.NoLimit}).
			handle("report", sleeps(0), durable.HandlerOptions{}).
			schedule("noon", "report", dailyAtNoon, durable.ScheduleOptions{})
		h.link.Store = &lockedSchedule{Store: f.store, left: 2}
		h.start()
		pass(13 * time.Hour)
		runs := f.runs()
		if len(runs) != 1 || runs[0].ClaimedAt.Sub(runs[0].DueAt) > 5*time.Second {
			t.Errorf("%+v, want one run, at noon", runs)
		}
		f.end()
	})
}

// If the call for a due tick, a due run or an expired lease fails, it is repeated soon, even if
// polls are rare.
//
// Fails when a failed call is repeated only with the next poll.
func TestCallThatFailsIsRepeatedSoon(t *testing.T) {
	for _, op := range []string{"due", "materialize", "claim", "reclaim"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.add(durable.Config{PollInterval: 24 * time.Hour, MaxDueAge: durable.NoLimit}).
					handle("report", sleeps(0), durable.HandlerOptions{}).
					schedule("noon", "report", dailyAtNoon, durable.ScheduleOptions{}).start()
				pass(11*time.Hour + 59*time.Minute)
				due := time.Now().Add(time.Minute)
				failed := 0
				h.link.on(func(call string) (fault, time.Duration) {
					if call == op && failed < 2 && !time.Now().Before(due) {
						failed++
						return refused, 0
					}
					return well, 0
				})
				pass(2 * time.Minute)
				runs := f.runs()
				if len(runs) != 1 || runs[0].ClaimedAt.Sub(runs[0].DueAt) > 15*time.Second {
					t.Errorf("%+v, want one run, at noon", runs)
				}
				if op == "reclaim" {
					pass(18 * time.Hour) // after the next poll and before the one after it
				}
				if failed != 2 {
					t.Errorf("%d calls failed, want the first to be repeated", failed)
				}
				f.end()
			})
		})
	}
}
