package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/schedule"
)

// accounted fails the test unless each tick, from first to the last tick in the schedule's row, was
// counted exactly once.
func (f *fleet) accounted(name string, s schedule.Schedule, first time.Time) store.ScheduleRow {
	f.t.Helper()
	row := f.ticks(name)
	n := int64(0)
	for at := first.Add(-time.Microsecond); ; n++ {
		next, err := schedule.Next(s, at)
		if err != nil {
			f.t.Fatal(err)
		}
		if next.IsZero() || next.After(row.LastDueAt) {
			break
		}
		at = next
	}
	if sum := row.Queued + row.Coalesced + row.Skipped + row.PausedTicks; sum != n {
		f.t.Errorf("%s: %d ticks up to %v, and %d queued, %d coalesced, %d skipped, %d paused", name, n, row.LastDueAt,
			row.Queued, row.Coalesced, row.Skipped, row.PausedTicks)
	}
	runs := map[time.Time]bool{}
	for _, r := range f.runs() {
		if r.Schedule == name {
			if runs[r.DueAt] {
				f.t.Errorf("%s: the tick %v has two runs", name, r.DueAt)
			}
			runs[r.DueAt] = true
		}
	}
	if int64(len(runs)) != row.Queued {
		f.t.Errorf("%s: %d runs, %d queued", name, len(runs), row.Queued)
	}
	return row
}

// The policy decides about ticks that came due while no worker was running.
//
// Fails when a tick is lost, runs twice, or is counted in two ways.
func TestCatchUp(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, c := range []struct {
		what                       string
		catchUp                    durable.CatchUp
		away                       time.Duration // how long after the end of a minute the worker starts
		queued, coalesced, skipped int64         // of the missed ticks, and of a tick on time if there is one
	}{
		{"coalesce", durable.CatchUp{}, time.Hour + 30*time.Second, 1, 59, 0},
		{"coalesce, in the window", durable.CatchUp{Window: time.Second}, time.Hour + 30*time.Second, 1, 59, 0},
		{"skip", durable.CatchUp{Policy: durable.CatchUpSkip}, time.Hour + 30*time.Second, 1, 0, 59},
		{"backfill", durable.CatchUp{Policy: durable.CatchUpBackfill}, time.Hour + 30*time.Second, 60, 0, 0},
		{"backfill, more than a plan has", durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 10_000},
			6*time.Hour + 30*time.Second, 360, 0, 0},
		{"backfill some", durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 7}, time.Hour + 30*time.Second, 8, 0,
			52},
		{"backfill the young", durable.CatchUp{Policy: durable.CatchUpBackfill, Window: 10 * time.Minute},
			time.Hour + 30*time.Second, 10, 0, 50},
		{"backfill some of many", durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 5}, week + 30*time.Second, 6, 0,
			10_074},
		{"nothing missed", durable.CatchUp{}, 90 * time.Second, 1, 0, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				add := func() *host {
					return f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
						schedule("often", "report", everyMinute, durable.ScheduleOptions{CatchUp: c.catchUp}).start()
				}
				h := add()
				pass(10 * time.Second)
				first := f.ticks("often").NextDueAt
				pass(10 * time.Minute)
				if err := h.stop(); err != nil {
					t.Fatal(err)
				}
				before := f.ticks("often")
				pass(c.away)
				add()
				pass(2 * time.Second)
				row := f.accounted("often", everyMinute, first)
				queued, coalesced, skipped := row.Queued-before.Queued, row.Coalesced-before.Coalesced,
					row.Skipped-before.Skipped
				if queued != c.queued || coalesced != c.coalesced || skipped != c.skipped {
					t.Errorf("%d queued, %d coalesced, %d skipped: want %d, %d, %d", queued, coalesced, skipped,
						c.queued,
						c.coalesced, c.skipped)
				}
				f.end()
			})
		})
	}
}

// A single tick that is more than LateAfter late follows the policy, too. A tick that is less late
// runs.
//
// Fails when a late tick is skipped, or a missed tick is not.
func TestTickThatIsLate(t *testing.T) {
	hourly := schedule.Every(time.Hour).Offset(0)
	for _, c := range []struct {
		policy  durable.CatchUpPolicy
		window  time.Duration
		late    time.Duration
		skipped int64
	}{
		{durable.CatchUpSkip, 0, 30 * time.Second, 0},
		{durable.CatchUpSkip, 0, 2 * time.Minute, 1},
		{durable.CatchUpOnce, 0, 20 * time.Minute, 0},
		{durable.CatchUpOnce, 10 * time.Minute, 20 * time.Minute, 1},
		{durable.CatchUpBackfill, 0, 20 * time.Minute, 0},
		{durable.CatchUpBackfill, 10 * time.Minute, 20 * time.Minute, 1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				add := func() *host {
					return f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
						schedule("hourly", "report", hourly, durable.ScheduleOptions{
							CatchUp: durable.CatchUp{Policy: c.policy, Window: c.window}}).start()
				}
				h := add()
				pass(10 * time.Second)
				first := f.ticks("hourly").NextDueAt
				h.stop()
				pass(time.Until(first) + c.late)
				add()
				pass(time.Second)
				if row := f.accounted("hourly", hourly, first); row.Skipped != c.skipped || row.Queued != 1-c.skipped {
					t.Errorf("%+v", row)
				}
				f.end()
			})
		})
	}
}

// While a run of a schedule waits for its first attempt, the next ticks are coalesced with it. With
// CatchUpBackfill, each tick has its own run. Triggered runs do not matter.
//
// Fails when the index allows more than one waiting run for a schedule, or does not exempt
// backfill.
func TestTicksWhileARunWaits(t *testing.T) {
	for _, policy := range []durable.CatchUpPolicy{durable.CatchUpOnce, durable.CatchUpBackfill} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				f.add(durable.Config{MaxRuns: 1}).handle("report", sleeps(10*time.Minute), durable.HandlerOptions{}).
					schedule("often", "report", everyMinute, durable.ScheduleOptions{
						CatchUp: durable.CatchUp{Policy: policy}}).start()
				pass(time.Second)
				first := f.ticks("often").NextDueAt
				for range 3 {
					f.trigger("report", durable.TriggerOptions{RunIn: time.Minute, Priority: durable.PriorityHigh})
				}
				pass(29 * time.Minute)
				row := f.accounted("often", everyMinute, first)
				if coalesced := row.Coalesced > 20; coalesced != (policy == durable.CatchUpOnce) {
					t.Errorf("%+v", row)
				}
				f.end()
			})
		})
	}
}

// A version with another spec takes over a schedule when it starts. A tick that is already due
// still runs, then the new spec applies, and the old version leaves the schedule alone. The worker
// that starts last decides.
//
// Fails when both versions queue ticks, or the tick of the old spec is lost.
func TestTwoVersionsOfASchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.level = slog.LevelDebug
		half := schedule.Every(time.Hour).Offset(30 * time.Minute)
		full := schedule.Every(time.Hour).Offset(0)
		add := func(s schedule.Schedule) *host {
			return f.add(durable.Config{PollInterval: 10 * time.Minute}).handle("report", sleeps(0),
				durable.HandlerOptions{}).
				schedule("hourly", "report", s, durable.ScheduleOptions{})
		}
		ticks := func(from, to time.Time) (minutes []int) {
			for _, r := range f.runs() {
				if r.DueAt.After(from) && r.DueAt.Before(to) {
					minutes = append(minutes, r.DueAt.Minute())
				}
			}
			slices.Sort(minutes)
			return slices.Compact(minutes)
		}
		start := time.Now().UTC().Truncate(time.Hour)
		older := add(half).start()
		pass(10*time.Hour + 5*time.Minute)
		newer := add(full).start()
		pass(10 * time.Hour)
		if got := ticks(start.Add(11*time.Hour-time.Second), start.Add(24*time.Hour)); !slices.Equal(got, []int{0}) {
			t.Errorf("after the take-over: %v", got)
		}
		if got := ticks(start, start.Add(10*time.Hour)); !slices.Equal(got, []int{30}) {
			t.Errorf("before: %v", got)
		}
		if n := strings.Count(older.log.String(), "another version has taken"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		older.stop()
		add(half).start() // the deploy is rolled back
		newer.stop()
		f.hosts = slices.DeleteFunc(f.hosts, func(h *host) bool { return h == newer })
		pass(5 * time.Hour)
		if got := ticks(start.Add(21*time.Hour), start.Add(48*time.Hour)); !slices.Equal(got, []int{30}) {
			t.Errorf("after the rollback: %v", got)
		}
		f.end()
	})
}

// If a version takes over a schedule and soon disappears, as in a deploy that is rolled back, the
// schedule does not stop. Workers that kept running take it back within a few minutes, but not from
// a version that still has a worker.
//
// Fails when only a starting worker takes over a schedule, or a version with a live worker loses
// it.
func TestVersionThatIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		add := func(s schedule.Schedule) *host {
			return f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).
				schedule("often", "report", s, durable.ScheduleOptions{}).start()
		}
		later := schedule.Every(time.Minute).Offset(30 * time.Second)
		add(everyMinute)
		pass(10 * time.Minute)
		canary := add(later)
		pass(time.Hour)
		if row := f.ticks("often"); row.NextDueAt.Second() != 30 {
			t.Errorf("the running version has lost it: %+v", row)
		}
		canary.kill()
		pass(7 * time.Minute)
		row := f.ticks("often")
		if row.NextDueAt.Second() != 0 || time.Since(row.LastDueAt) > 2*time.Minute {
			t.Errorf("the schedule does not advance: %+v at %v", row, time.Now())
		}
		f.end()
	})
}

// A tick of an old spec that came due while no worker was running runs when a version with another
// spec starts.
//
// Fails when a change of the spec forgets the tick.
func TestPromisedTickSurvivesAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		add := func(s schedule.Schedule, handler string) *host {
			return f.add(durable.Config{}).handle(handler, sleeps(0), durable.HandlerOptions{}).
				schedule("daily", "report", s, durable.ScheduleOptions{}).handle("unused", sleeps(0),
				durable.HandlerOptions{})
		}
		h := add(schedule.Daily("07:00", "Europe/Berlin"), "report").start()
		pass(time.Minute)
		due := f.ticks("daily").NextDueAt
		h.stop()
		pass(time.Until(due) + 10*time.Minute)
		add(schedule.Daily("07:00", "America/New_York"), "report").start()
		pass(time.Minute)
		row := f.ticks("daily")
		if row.Queued != 1 || !row.LastDueAt.Equal(due) || row.NextDueAt.Sub(due) != 6*time.Hour {
			t.Errorf("%+v", row)
		}
		if runs := f.runs(store.StateSucceeded); len(runs) != 1 || !runs[0].DueAt.Equal(due) {
			t.Errorf("%+v", runs)
		}
		f.end()
	})
}

// A renamed schedule is another schedule. A schedule that no worker has any more has no ticks. If
// it comes back, it has missed ticks. After Retention.Unseen, its row is deleted.
//
// Fails when ticks of a schedule that no worker has are queued, when one of its runs is lost, or
// when it makes checks fail.
func TestRenamedAndRemovedSchedules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		add := func(name string) *host {
			return f.add(durable.Config{PollInterval: 10 * time.Minute,
				Retention: durable.Retention{Unseen: 2 * time.Hour}}).
				handle("report", sleeps(0), durable.HandlerOptions{}).
				schedule(name, "report", everyMinute, durable.ScheduleOptions{}).start()
		}
		h := add("old")
		pass(time.Second)
		first := f.ticks("old").NextDueAt
		pass(10 * time.Minute)
		h.stop()
		renamed := add("new")
		before := f.ticks("old")
		pass(10 * time.Minute)
		if row := f.ticks("old"); row.Queued != before.Queued || f.ticks("new").Queued != 10 {
			t.Errorf("%+v, %+v", row, f.ticks("new"))
		}
		if err := renamed.Checks()["runs-on-time"](); err != nil {
			t.Errorf("ticks of a schedule that was removed are overdue: %v", err)
		}
		back := add("old")
		pass(2 * time.Minute)
		if row := f.accounted("old", everyMinute, first); row.Coalesced == 0 {
			t.Errorf("%+v", row)
		}
		back.stop()
		pass(150 * time.Minute)
		rows, err := f.store.Schedules(t.Context())
		if err != nil || len(rows) != 1 || rows[0].Name != "new" {
			t.Errorf("%+v, %v", rows, err)
		}
		if renamed.stop() != nil {
			t.Error("the worker did not end")
		}
		f.end()
	})
}

// If a newer version renames a handler, ticks go to the new name when that version starts. Runs
// queued for the old name are not lost while a worker of the old version runs.
//
// Fails when the old version keeps queueing runs for a handler that no worker will have.
func TestRenamedHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		add := func(handler string) *host {
			return f.add(durable.Config{}).handle(handler, sleeps(0), durable.HandlerOptions{}).
				schedule("often", handler, everyMinute, durable.ScheduleOptions{}).start()
		}
		add("old")
		pass(10*time.Minute + time.Second)
		add("new")
		pass(10 * time.Minute)
		if left := f.runs(store.StateQueued); len(left) > 0 {
			t.Errorf("%+v", left)
		}
		by := map[string]int{}
		for _, r := range f.runs() {
			by[r.Handler]++
		}
		if by["old"] != 10 || by["new"] != 10 {
			t.Errorf("%v", by)
		}
		f.end()
	})
}

// nexts is a user's schedule, whose Next is a function.
type nexts struct {
	name string
	next func(time.Time) time.Time
}

func (n nexts) Next(t time.Time) time.Time { return n.next(t) }

func (n nexts) String() string { return n.name }

// A schedule that panics, hangs, or goes back in time delays only its own ticks. The log and the
// check name it, and it recovers without intervention. If it hangs when Run ends, the error of Run
// names it.
//
// Fails when the loop waits for a schedule.
func TestScheduleThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var bad atomic.Bool
		free := make(chan struct{})
		minutes := func(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }
		h := f.add(durable.Config{DrainTimeout: time.Second}).handle("report", sleeps(0), durable.HandlerOptions{})
		for name, next := range map[string]func(time.Time) time.Time{
			"panics": func(time.Time) time.Time { panic("help") },
			"back":   func(t time.Time) time.Time { return t.Add(-time.Hour) },
			"hangs":  func(t time.Time) time.Time { <-free; return minutes(t) },
			"slow":   func(t time.Time) time.Time { time.Sleep(3 * time.Second); return minutes(t) },
		} {
			h.schedule(name, "report", nexts{name, func(t time.Time) time.Time {
				if bad.Load() {
					return next(t)
				}
				return minutes(t)
			}}, durable.ScheduleOptions{})
		}
		h.schedule("good", "report", everyMinute, durable.ScheduleOptions{}).start()
		pass(10*time.Minute + 30*time.Second)
		if err := h.Checks()["schedules-work"](); err != nil {
			t.Error(err)
		}
		bad.Store(true)
		pass(10 * time.Minute)
		for name, want := range map[string]int64{"good": 20, "panics": 10, "back": 10, "hangs": 10, "slow": 20} {
			if row := f.ticks(name); row.Queued < want || row.Queued > want+1 {
				t.Errorf("%s: %+v", name, row)
			}
		}
		err := h.Checks()["schedules-work"]()
		for _, want := range []string{`"panics": its Next panicked: help`, `"back": its Next(`,
			`"hangs": its Next does`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not contain %q: %v", want, err)
			}
		}
		if h.Live() != nil || strings.Count(h.log.String(), "a schedule fails") > 20 {
			t.Errorf("%v", h.Live())
		}
		bad.Store(false)
		pass(5 * time.Minute)
		if row := f.ticks("panics"); row.Coalesced < 9 {
			t.Errorf("%+v", row)
		}
		if err := h.stop(); err == nil || err.Error() != "durable: shut down with schedules that do not return: hangs" {
			t.Errorf("Run: %v", err)
		}
		f.watch.killed(h)
		close(free)
		f.end()
	})
}

// If a schedule has missed too many ticks to count them one by one, it continues with the latest
// tick without a delay.
//
// Fails when it continues with an older tick.
func TestVeryManyMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		add := func() *host {
			return f.add(durable.Config{}).handle("report", func(context.Context, *durable.Run) error { return nil },
				durable.HandlerOptions{}).
				schedule("often", "report", nexts{"seconds", func(t time.Time) time.Time {
					return t.Truncate(time.Second).Add(time.Second)
				}}, durable.ScheduleOptions{}).
				schedule("grid", "report", schedule.Every(time.Millisecond),
					durable.ScheduleOptions{CatchUp: durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 3}}).start()
		}
		h := add()
		pass(1500 * time.Millisecond)
		h.stop()
		pass(30 * time.Hour)
		began := time.Now()
		h = add()
		pass(10 * time.Millisecond)
		h.stop()
		row := f.ticks("often")
		if began.Sub(row.LastDueAt) > time.Second || row.Queued > 3 {
			t.Errorf("%+v at %v", row, began)
		}
		if row := f.ticks("grid"); row.Skipped < 100_000_000 || row.Queued > 1600 {
			t.Errorf("%+v", row)
		}
		f.end()
	})
}
