package timer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// at returns a time in the first days of a bubble.
func at(day, hour, minute int) time.Time {
	return time.Date(2000, 1, day, hour, minute, 0, 0, time.UTC)
}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

// rarely makes hosts renew their slots rarely, for tests that last days.
var rarely = timer.Config{TTL: time.Hour}

// wantRuns checks how many runs a timer has had in the fleet, and the latest tick among them.
func (f *virtualFleet) wantRuns(when, name string, n int, last time.Time) {
	f.t.Helper()
	if got, latest := f.runs(name); got != n || !latest.Equal(last) {
		f.t.Errorf("%s: %d runs, the last of %v; want %d, %v", when, got, latest, n, last)
	}
}

// A new schedule does not run for a tick that it would have had before it was deployed, because no
// host had that tick at the time. Once a tick has been claimed under the new schedule, missed ticks
// are caught up as before.
//
// Fails when tick.claim omits the schedule, or when memlock does not compare it.
func TestAChangedScheduleHasMissedNothing(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new schedule.Schedule
	}{
		{"the time of day", schedule.Daily("02:00", ""), schedule.Daily("14:00", "")},
		{"the zone", schedule.Daily("14:00", "America/New_York"), schedule.Daily("14:00", "UTC")},
		{"one tick more", schedule.Cron("0 2 * * *", ""), schedule.Cron("0 2,14 * * *", "")},
		{"an exception less", schedule.Except(schedule.Daily("14:00", ""), schedule.Dates("", "2000-01-02")),
			schedule.Daily("14:00", "")},
		{"another exception", schedule.Except(schedule.Daily("14:00", ""), schedule.Dates("", "2000-01-02")),
			schedule.Except(schedule.Daily("14:00", ""), schedule.Dates("", "2000-01-09"))},
		{"one instant more", schedule.At(at(1, 2, 0), at(3, 14, 0)), schedule.At(at(1, 2, 0), at(2, 14, 0),
			at(3, 14, 0))},
		{"another kind", schedule.Daily("02:00", ""), schedule.Every(24 * time.Hour).Offset(14 * time.Hour)},
		{"the grid", schedule.Every(24 * time.Hour).Offset(2 * time.Hour),
			schedule.Every(24 * time.Hour).Offset(14 * time.Hour)},
		{"a type of somebody else's", &ownDaily{2}, &ownDaily{14}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := func(s schedule.Schedule) timer.Timer {
					return timer.Timer{Name: "job", Schedule: s, CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce},
						Run: f.handler(time.Second)}
				}
				for range 2 {
					f.start(rarely, job(c.old))
				}
				sleepUntil(at(2, 13, 0))
				f.ended()
				sleepUntil(at(2, 14, 30))
				before, _ := f.runs("job")
				if before == 0 {
					t.Fatal("nothing ran")
				}
				for range 2 {
					f.start(rarely, job(c.new))
					time.Sleep(time.Minute)
				}
				if after, last := f.runs("job"); after != before {
					t.Errorf("the deployment started a run, of %v", last)
				}
				if skipped := f.ended(); skipped[timer.ReasonTickFirst] != 2 {
					t.Errorf("skipped %v", skipped)
				}
				f.start(rarely, job(c.new))
				sleepUntil(at(3, 14, 10))
				f.ended()
				if c.name == "one instant more" {
					return // this was the last tick
				}
				ran, last := f.runs("job")
				if ran <= before || !last.Equal(at(3, 14, 0)) {
					t.Errorf("the new schedule had %d runs, the last of %v", ran-before, last)
				}
				sleepUntil(at(4, 14, 30))
				f.start(rarely, job(c.new))
				time.Sleep(time.Minute)
				f.wantRuns("missed by the new schedule", "job", ran+1, at(4, 14, 0))
				f.ended()
			})
		})
	}
}

// ownDaily is due once a day at that hour. It is used as a pointer, so that each value has its own
// address.
type ownDaily struct{ hour int }

func (s *ownDaily) Next(t time.Time) time.Time {
	next := t.Truncate(24 * time.Hour).Add(time.Duration(s.hour) * time.Hour)
	if !next.After(t) {
		next = next.Add(24 * time.Hour)
	}
	return next
}

func (s *ownDaily) String() string { return fmt.Sprintf("daily at %d", s.hour) }

// During a rolling deployment of a new schedule, hosts with the old and the new one run side by
// side, and hosts start and stop. No tick runs twice, and a late run is for a tick that its own
// schedule has missed.
//
// Fails when a schedule has separate ticks in the store, since both have a tick at 04:00.
func TestTwoSchedulesSideBySide(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				chance := rand.New(rand.NewPCG(seed, 7))
				schedules := []schedule.Schedule{schedule.Cron("0 */2 * * *", ""), schedule.Cron("30 */2 * * *", ""),
					schedule.Cron("0 */4 * * *", "")}
				for range 3 {
					f.start(rarely, timer.Timer{Name: "job", Schedule: schedules[0], Run: f.handler(time.Second)})
				}
				for range 60 {
					time.Sleep(time.Duration(chance.IntN(90)) * time.Minute)
					i := chance.IntN(3)
					h := f.Hosts[i]
					f.Hosts = slices.Delete(f.Hosts, i, i+1)
					h.Stopped(t)
					h.Accounted(t)
					f.start(rarely, timer.Timer{Name: "job", Schedule: schedules[chance.IntN(3)],
						Run: f.handler(time.Second)})
				}
				f.ended()
				if ran, most := f.watch.ticks("job"); most != 1 || ran < 15 {
					t.Errorf("%d ticks ran, up to %d times", ran, most)
				}
				f.watch.check(t)
			})
		})
	}
}

// A host that starts does not run a tick that other hosts tried in time and skipped because a run
// was still in progress. That run may be on the same host or another, and may hold the last slot of
// the fleet or of the host. Its host may even have died in the meantime.
//
// Fails when memlock forgets when a lease was released, or forgets leases that were never released.
func TestASkippedTickIsNotMissed(t *testing.T) {
	for _, c := range []struct {
		name  string
		job   timer.Timer
		hosts int
		crash bool
	}{
		{"on the host", timer.Timer{}, 1, false},
		{"on another host", timer.Timer{}, 3, false},
		{"the host's limit", timer.Timer{MaxConcurrency: 3, MaxPerTick: 1, MaxPerHost: 1}, 1, false},
		{"every host's limit", timer.Timer{MaxConcurrency: 2, MaxPerTick: 2, MaxPerHost: 1}, 2, false},
		{"the host dies", timer.Timer{}, 1, true},
		{"another host dies", timer.Timer{}, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				c.job.Name, c.job.Schedule, c.job.MaxRunTime, c.job.Run = "job", schedule.Cron("0 * * * *", ""),
					2*time.Hour, f.handler(70*time.Minute)
				c.job.OnStoreDown = timer.StoreDownSkip
				time.Sleep(30 * time.Minute)
				for range c.hosts {
					f.start(timer.Config{TTL: 40 * time.Second}, c.job)
				}
				sleepUntil(at(1, 2, 5))
				before, _ := f.runs("job")
				if c.crash {
					for _, h := range f.Hosts {
						h.Link.Inject(dlocktest.Error(errors.New("cut off")))
					}
				}
				for _, minute := range []int{6, 15} {
					sleepUntil(at(1, 2, minute))
					f.start(timer.Config{TTL: 40 * time.Second}, c.job)
				}
				sleepUntil(at(1, 2, 59))
				f.wantRuns("before the next tick", "job", before, at(1, 1, 0))
				sleepUntil(at(1, 3, 5))
				if _, last := f.runs("job"); !last.Equal(at(1, 3, 0)) {
					t.Errorf("the next tick did not run: the last was %v", last)
				}
				for _, h := range f.Hosts {
					h.Link.Heal()
				}
				sleepUntil(at(1, 4, 30))
				f.ended()
				f.watch.check(t)
			})
		})
	}
}

// A tick that no host could start, because the store was down or granted nothing yet, was missed. A
// host that starts runs it.
//
// Fails when a tick counts as skipped because hosts were running.
func TestATickThatTheStoreRefusedIsMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: schedule.Cron("0 * * * *", ""), OnStoreDown: timer.StoreDownSkip,
			Run: f.handler(time.Second)}
		time.Sleep(30 * time.Minute)
		h := f.start(timer.Config{}, job)
		sleepUntil(at(1, 1, 50))
		h.Link.Inject(dlocktest.Error(errors.New("down")))
		sleepUntil(at(1, 2, 10))
		h.Link.Heal()
		sleepUntil(at(1, 2, 14))
		f.wantRuns("before a host starts", "job", 1, at(1, 1, 0))
		f.start(timer.Config{}, job)
		time.Sleep(time.Minute)
		f.wantRuns("when a host has started", "job", 2, at(1, 2, 0))
		f.ended()
	})
}

// A limit of 0 is a pause. Ticks that were due under it are not missed when the limit is reset or
// replaced.
//
// Fails when memlock does not record when the limit was lifted.
func TestALimitOfZeroIsNotMissed(t *testing.T) {
	for _, lift := range []int{-1, 1} {
		t.Run(fmt.Sprint(lift), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: schedule.Daily("02:00", ""), Run: f.handler(time.Second)}
				f.start(rarely, job)
				ctl := control.New(control.Config{Store: f.store})
				sleepUntil(at(2, 1, 30))
				if err := ctl.SetMaxConcurrency(t.Context(), "job", 0, ann); err != nil {
					t.Fatal(err)
				}
				sleepUntil(at(2, 2, 15))
				err := ctl.ResetMaxConcurrency(t.Context(), "job", ann)
				if lift > 0 {
					err = ctl.SetMaxConcurrency(t.Context(), "job", lift, ann)
				}
				if err != nil {
					t.Fatal(err)
				}
				sleepUntil(at(2, 2, 30))
				f.start(rarely, job)
				time.Sleep(time.Minute)
				f.wantRuns("after the deployment", "job", 1, at(1, 2, 0))
				sleepUntil(at(3, 1, 0))
				f.wantRuns("after the day", "job", 1, at(1, 2, 0))
				sleepUntil(at(3, 3, 0))
				f.wantRuns("after the next tick", "job", 2, at(3, 2, 0))
				f.ended()
			})
		})
	}
}

// If an operator allows more overlapping runs on a slow day, no tick has more starts, so no email
// is sent twice. With fewer runs, no tick has more starts either.
//
// Fails when tick.claim lets Max follow the limit override.
func TestALimitOverrideDoesNotRaiseTheRate(t *testing.T) {
	for _, c := range []struct{ inCode, override, runs int }{{1, 2, 60}, {1, 100, 60}, {2, 5, 120}, {3, 1, 180}} {
		t.Run(fmt.Sprintf("%d in code, %d overridden", c.inCode, c.override), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				for i := range 3 { // their clocks differ by more than a run takes, so that slots are free again
					h := f.start(timer.Config{}, timer.Timer{Name: "job",
						Schedule: schedule.Every(time.Minute).Offset(0), MaxConcurrency: c.inCode, MaxPerTick: c.inCode,
						Run: f.handler(time.Second)})
					timer.SetSkew(h.Scheduler, -time.Duration(i)*2*time.Second)
				}
				if err := f.Hosts[0].Control().SetMaxConcurrency(t.Context(), "job", c.override, ann); err != nil {
					t.Fatal(err)
				}
				sleepUntil(at(1, 0, 0).Add(30 * time.Second))
				before, _ := f.runs("job")
				time.Sleep(time.Hour)
				runs, _ := f.runs("job")
				if _, most := f.watch.ticks("job"); runs-before != c.runs || most > c.inCode {
					t.Errorf("%d runs of 60 ticks, up to %d of one; want %d, %d", runs-before, most, c.runs, c.inCode)
				}
				if st, _ := f.Hosts[0].Status().Timer("job"); st.MaxPerTick != c.inCode ||
					st.MaxConcurrency != c.override {
					t.Errorf("%+v", st)
				}
				f.ended()
				f.watch.check(t)
			})
		})
	}
}

// If hosts try their ticks with a delay, the delayed time determines whether a tick was due during
// a pause or a run.
//
// Fails when tick.claim passes the time of the tick as the time at which it was due.
func TestDelayedTicksAreMissedWhenTheyComeDue(t *testing.T) {
	for _, what := range []string{"pause", "run"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: schedule.Daily("02:00", ""),
					Delay: timer.Delay{ByTimer: 10 * time.Hour}, CatchUp: timer.CatchUp{Window: 24 * time.Hour},
					Run: f.handler(time.Second)}
				h := f.start(rarely, job)
				time.Sleep(23 * time.Hour)
				st, _ := h.Status().Timer("job")
				if st.Last == nil {
					t.Fatalf("%+v", st)
				}
				delay := st.Last.StartedAt.Sub(at(1, 2, 0))
				if delay < 40*time.Minute || st.Started != 1 {
					t.Fatalf("its delay of %v is too short for this test: choose a different name for the timer", delay)
				}
				due := at(2, 2, 0).Add(delay)
				sleepUntil(at(2, 2, 0).Add(-time.Minute))
				if what == "pause" {
					if err := h.Control().Pause(t.Context(), "job", due.Add(-20*time.Minute), ann); err != nil {
						t.Fatal(err)
					}
				} else if err := h.Trigger(t.Context(), "job"); err != nil {
					t.Fatal(err)
				}
				sleepUntil(due.Add(-10 * time.Minute))
				runs, _ := f.runs("job")
				f.ended()
				sleepUntil(due.Add(time.Hour))
				f.start(rarely, job)
				time.Sleep(time.Minute)
				f.wantRuns("an hour later", "job", runs+1, at(2, 2, 0))
				f.ended()
			})
		})
	}
}
