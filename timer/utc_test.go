package timer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// zonesSeen records the zones of the instants that a user-defined schedule or blackout receives.
type zonesSeen struct {
	mu   sync.Mutex
	seen map[string]int
}

func (z *zonesSeen) ask(t time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.seen == nil {
		z.seen = map[string]int{}
	}
	what := "in UTC"
	if t.Location() != time.UTC { // the local zone may have the same name
		what = fmt.Sprintf("in the zone %s", t.Location())
	}
	if t != t.Round(0) {
		what += ", with a monotonic clock"
	}
	z.seen[what]++
}

func (z *zonesSeen) only(t *testing.T, what string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.seen) != 1 || z.seen["in UTC"] == 0 {
		t.Errorf("%s were called in %v, want UTC only", what, z.seen)
	}
}

// Every part calls user-defined schedules and blackouts in UTC, so that hosts in different zones
// agree with each other, and Explain agrees with the scheduler.
//
// Fails when schedule.Next or schedule.BlackedOut passes on an instant unchanged.
func TestOthersAreAskedInUTC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var schedules, blackouts zonesSeen
		minutely := scheduleFunc(func(at time.Time) time.Time {
			schedules.ask(at)
			return at.Truncate(time.Minute).Add(time.Minute)
		})
		never := schedule.BlackoutFunc(func(at time.Time) bool { blackouts.ask(at); return false })
		f := newFleet(t)
		local := time.FixedZone("of this host", -5*3600)
		run := f.handler(0)
		h := f.start(timer.Config{Blackouts: []schedule.Blackout{never}},
			timer.Timer{Name: "a", Schedule: minutely, Delay: timer.Delay{Jitter: 0.2},
				CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, Blackouts: []schedule.Blackout{never}, Run: run},
			timer.Timer{Name: "b", Schedule: schedule.Except(minutely, never), Run: run})
		time.Sleep(10 * time.Minute)
		for _, name := range []string{"a", "b"} {
			if _, err := h.Explain(t.Context(), name, time.Now().In(local)); err != nil {
				t.Error(err)
			}
		}
		timer.SetSkew(h.Scheduler, -time.Hour) // makes the planner call all schedules again
		timer.Poke(h.Scheduler)
		time.Sleep(10 * time.Minute)
		f.Stop()
		schedules.only(t, "schedules")
		blackouts.only(t, "blackouts")
	})
}

// If a schedule uses the zone of its argument, as robfig/cron and its successors do, Explain and
// the scheduler agree on its ticks.
func TestExplainAgreesWithTheSchedulerAboutForeignCron(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nightly, err := cron.ParseStandard("0 2 * * *")
		if err != nil {
			t.Fatal(err)
		}
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: nightly,
			Run: func(context.Context) error { return nil }})
		next := h.Status().Timers[0].Next
		if want := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC); !next.Equal(want) {
			t.Errorf("next %v, want %v: two o'clock in UTC, wherever the host is", next, want)
		}
		x, err := h.Explain(t.Context(), "a", next.In(time.FixedZone("elsewhere", 3*3600)))
		if want := "a at 2000-01-01T02:00:00Z: not due yet on "; err != nil || len(x.Text) < len(want) ||
			x.Text[:len(want)] != want {
			t.Errorf("%v, %v", x, err)
		}
		f.Stop()
	})
}
