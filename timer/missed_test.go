package timer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// tenMinutes is a grid that starts at the full hour, as the time in a bubble does.
var tenMinutes = schedule.Every(10 * time.Minute).Offset(0)

// ended stops all hosts, checks that their counts add up, and removes them, so that the fleet is
// down. It returns the skipped ticks by reason.
func (f *virtualFleet) ended() map[timer.Reason]uint64 {
	f.t.Helper()
	f.Stop()
	sum := map[timer.Reason]uint64{}
	for _, h := range f.Hosts {
		_, skipped := h.Accounted(f.t)
		for reason, n := range skipped {
			sum[reason] += n
		}
	}
	f.Hosts = nil
	return sum
}

// runs returns how many runs a timer has had in the fleet, and the latest tick among them.
func (f *virtualFleet) runs(name string) (n int, last time.Time) {
	f.watch.mu.Lock()
	defer f.watch.mu.Unlock()
	for tick, starts := range f.watch.starts[name] {
		n += starts
		if tick.After(last) {
			last = tick
		}
	}
	return n, last
}

// A sleeper blocks the scheduling goroutine of a host. For ticks, the host is then suspended.
type sleeper struct {
	nap   atomic.Int64
	every time.Duration // the interval at which it may block; default one second
}

func (s *sleeper) Next(t time.Time) time.Time {
	time.Sleep(time.Duration(s.nap.Swap(0)))
	every := max(s.every, time.Second)
	return t.Truncate(every).Add(every)
}

// sleep makes the host miss the ticks that are due before until.
func (s *sleeper) sleep(until time.Time) { s.nap.Store(int64(time.Until(until))) }

func (s *sleeper) timer() timer.Timer {
	return timer.Timer{Name: "sleeper", Schedule: s, LocalOnly: true, Run: nop}
}

// After an outage of the fleet, one run makes up for all missed ticks: the run of the latest tick.
// That holds for any number of hosts, of missed ticks and of allowed starts per tick, and in
// whatever order the hosts return. The run is not repeated when the hosts are replaced one by one.
//
// Fails when the claim of a missed tick is not marked as such (acquire), when memlock adds such a
// claim to others, or when schedule.Latest returns the first tick.
func TestMissedTicksRunOnceInTheFleet(t *testing.T) {
	for _, c := range []struct {
		hosts, perTick, ticks int
		apart                 time.Duration // between the returns of the hosts
	}{
		{1, 1, 1, 0}, {1, 3, 40, 0}, {3, 1, 1, 0}, {3, 3, 3, 0}, {5, 5, 40, 0}, {3, 3, 2, 20 * time.Second},
		{5, 1, 7, 90 * time.Second}, {4, timer.NoLimit, 3, time.Second},
	} {
		t.Run(fmt.Sprintf("%d hosts, %d per tick, %d missed, %v apart", c.hosts, c.perTick, c.ticks, c.apart),
			func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					job := timer.Timer{Name: "job", Schedule: tenMinutes, MaxConcurrency: 5, MaxPerTick: c.perTick,
						CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, Run: f.handler(time.Second)}
					up := func(apart time.Duration) {
						for range c.hosts {
							f.start(timer.Config{}, job)
							time.Sleep(apart)
						}
					}
					time.Sleep(5 * time.Minute)
					up(0)
					time.Sleep(20 * time.Minute) // it is now 00:25, and the latest tick was at 00:20
					usual := c.hosts
					if c.perTick != timer.NoLimit {
						usual = min(usual, c.perTick)
					}
					if n, _ := f.runs("job"); n != 2*usual {
						t.Fatalf("%d runs of 2 ticks", n)
					}
					f.ended()
					time.Sleep(time.Duration(c.ticks) * 10 * time.Minute)
					down := time.Now()
					latest := down.Truncate(10 * time.Minute)
					up(c.apart)
					for _, h := range slices.Clone(f.Hosts) { // a rolling deployment
						h.Stopped(t)
						h.Accounted(t)
						f.Hosts = slices.DeleteFunc(f.Hosts, func(other *host) bool { return other == h })
						f.start(timer.Config{}, job)
					}
					for time.Since(down) < time.Duration(c.hosts)*c.apart+time.Second {
						time.Sleep(time.Second)
					}
					want, wantLast := 2*usual+1, latest
					if c.perTick == timer.NoLimit { // the store cannot know
						want = 2 * usual
						wantLast = time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC)
					}
					seen := time.Now().Truncate(10 * time.Minute)
					for ; seen.After(latest); seen = seen.Add(-10 * time.Minute) { // due while the hosts returned
						wantLast = time.Now().Truncate(10 * time.Minute)
						_, most := f.watch.ticks("job")
						if most > usual {
							t.Errorf("%d starts of one tick", most)
						}
					}
					n, last := f.runs("job")
					if wantLast.Equal(latest) && n != want || n < want || !last.Equal(wantLast) {
						t.Errorf("%d runs, the last of %v; want %d, %v", n, last, want, wantLast)
					}
					if starts := f.watch.startsOf("job", latest.UTC()); c.perTick != timer.NoLimit && starts != 1 {
						t.Errorf("the latest tick that was missed had %d runs", starts)
					}
					before, _ := f.runs("job")
					time.Sleep(10 * time.Minute)
					if after, _ := f.runs("job"); after-before != usual {
						t.Errorf("the tick after had %d runs, want %d", after-before, usual)
					}
					f.ended()
					f.watch.check(t)
				})
			})
	}
}

// If no host has ever run a timer, it has not missed the ticks before its first host. Nor has a
// timer whose latest tick is older than CatchUp.Window, or a timer that skips missed ticks.
//
// Fails when memlock grants the claim of a missed tick of a name without a tick, when
// schedule.Latest searches beyond the window, or when catchUpWindow checks only CatchUp.Window.
func TestNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		hourly := schedule.Every(time.Hour).Offset(0)
		job := func(name string, window time.Duration, policy timer.CatchUpPolicy) timer.Timer {
			return timer.Timer{Name: name, Schedule: hourly, CatchUp: timer.CatchUp{Policy: policy, Window: window},
				Run: f.handler(time.Second)}
		}
		old := []timer.Timer{job("narrow", 30*time.Minute, timer.CatchUpOnce),
			job("wide", 31*time.Minute, timer.CatchUpOnce), job("skip", 0, timer.CatchUpSkip)}
		f.start(timer.Config{}, old...)
		time.Sleep(90 * time.Minute) // it is now 01:30
		f.ended()
		time.Sleep(time.Hour + time.Second) // it is now 02:30:01
		h := f.start(timer.Config{}, append(old, job("new", 0, timer.CatchUpOnce))...)
		time.Sleep(time.Minute)
		for name, want := range map[string]int{"narrow": 1, "wide": 2, "skip": 1, "new": 0} {
			if n, _ := f.runs(name); n != want {
				t.Errorf("%s: %d runs, want %d", name, n, want)
			}
		}
		if st, _ := h.Status().Timer("new"); st.Skipped[timer.ReasonTickFirst] != 1 {
			t.Errorf("a new timer: %+v", st)
		}
		for _, name := range []string{"narrow", "skip"} {
			if st, _ := h.Status().Timer(name); st.Ticks != 0 {
				t.Errorf("%s: it has counted a tick that no host had: %+v", name, st)
			}
		}
		f.ended()
	})
}

// Missed ticks of calendars, and of intervals of a day, are caught up by default, including the
// very last tick of a calendar. Missed ticks of other schedules are not.
//
// Fails when setNext drops the missed ticks of a schedule that has ended, or when withDefaults
// gives CatchUpSkip to calendars.
func TestMissedByDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		at := func(minute int) time.Time { return time.Date(2000, 1, 1, 0, minute, 0, 0, time.UTC) }
		grid := tenMinutes
		schedules := map[string]schedule.Schedule{
			"cron":   schedule.Cron("*/10 * * * *", "UTC"),
			"at":     schedule.At(at(10), at(20)),
			"except": schedule.Except(schedule.Cron("*/10 * * * *", "UTC"), schedule.Weekdays("UTC", time.Sunday)),
			"times":  schedule.Times(2, at(10), schedule.Cron("*/10 * * * *", "UTC")),
			"every":  grid,
			"long":   schedule.Every(24 * time.Hour).Offset(20 * time.Minute),
			"short":  schedule.Every(24*time.Hour - time.Millisecond).From(at(20)),
			"own":    scheduleFunc(func(t time.Time) time.Time { return grid.Next(t) }),
		}
		var timers []timer.Timer
		for name, s := range schedules {
			timers = append(timers, timer.Timer{Name: name, Schedule: s, Run: f.handler(time.Second)})
		}
		f.start(timer.Config{}, timers...)
		time.Sleep(15 * time.Minute)
		f.ended()
		time.Sleep(10 * time.Minute)
		f.start(timer.Config{}, timers...)
		time.Sleep(time.Minute)
		for name, want := range map[string]int{"cron": 20, "at": 20, "except": 20, "times": 20, "every": 10, "own": 10,
			"long": 20, "short": 0} {
			if _, last := f.runs(name); want > 0 && !last.Equal(at(want)) || want == 0 && !last.IsZero() {
				t.Errorf("%s: its last run is of %v, want %v", name, last, at(want))
			}
		}
		f.ended()
	})
}

// A host that was suspended runs the latest missed tick unless another host has claimed it. Without
// a store it runs the latest tick that it missed. It counts all ticks.
//
// Fails when schedules.due treats late ticks as punctual, or when schedules.first runs missed ticks
// without a store.
func TestMissedBySleeping(t *testing.T) {
	// each runs three hosts, some of which are suspended from 00:12 to 00:45. It returns how many
	// times the latest tick ran, and the skipped ticks by reason.
	each := func(t *testing.T, job timer.Timer, asleep, hosts int) (starts int, skipped map[timer.Reason]uint64) {
		f := newFleet(t)
		job.Name, job.Run = "job", f.handler(time.Second)
		time.Sleep(time.Second)
		var sleepers []*sleeper
		for range hosts {
			s := &sleeper{}
			sleepers = append(sleepers, s)
			f.start(timer.Config{TTL: time.Minute}, job, s.timer())
		}
		time.Sleep(12 * time.Minute)
		for _, s := range sleepers[:asleep] {
			s.sleep(time.Date(2000, 1, 1, 0, 45, 0, 0, time.UTC))
		}
		time.Sleep(36 * time.Minute)
		starts = f.watch.startsOf("job", time.Date(2000, 1, 1, 0, 40, 0, 0, time.UTC))
		n, _ := f.runs("job")
		time.Sleep(4 * time.Minute)
		if after, _ := f.runs("job"); after == n {
			t.Error("the tick after did not run")
		}
		for _, h := range f.Hosts {
			st, _ := h.Status().Timer("job")
			if st.Ticks-st.Skipped[timer.ReasonTickFirst] != 5 { // each host began with a tick that was not missed
				t.Errorf("%d ticks accounted for, want all 5", st.Ticks)
			}
			for reason, n := range st.Skipped {
				if skipped == nil {
					skipped = map[timer.Reason]uint64{}
				}
				skipped[reason] += n
			}
		}
		f.ended()
		f.watch.check(t)
		return starts, skipped
	}
	for _, c := range []struct {
		name          string
		job           timer.Timer
		asleep, hosts int
		starts        int
	}{
		{"all", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}}, 3, 3, 1},
		{"all, three per tick", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, MaxConcurrency: 3,
			MaxPerTick: 3}, 3, 3, 1},
		{"all, skip", timer.Timer{}, 3, 3, 0},
		{"one", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}}, 1, 3, 1},
		{"one, three per tick", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, MaxConcurrency: 3,
			MaxPerTick: 3}, 1, 3, 2},
		{"all, and long ago", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce, Window: 4 * time.Minute}},
			3, 3, 0},
		{"all, without a limit per tick", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce},
			MaxConcurrency: 9, MaxPerTick: timer.NoLimit}, 3, 3, 3},
		{"one alone", timer.Timer{CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, LocalOnly: true}, 1, 1, 1},
		{"one alone, skip", timer.Timer{LocalOnly: true}, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c.job.Schedule = tenMinutes
				starts, skipped := each(t, c.job, c.asleep, c.hosts)
				if starts != c.starts {
					t.Errorf("%d runs of the latest tick that was missed, want %d (skipped %v)", starts, c.starts,
						skipped)
				}
				if skipped[timer.ReasonMissed] < uint64(2*c.asleep) {
					t.Errorf("skipped %v: each that slept missed two ticks before the latest", skipped)
				}
			})
		})
	}
}

// Without a store, a host that starts does not know earlier ticks, and runs no missed tick.
//
// Fails when claimsMissed lets a local timer claim missed ticks.
func TestNothingIsMissedWithoutAStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		time.Sleep(15 * time.Minute)
		h := f.start(timer.Config{}, timer.Timer{Name: "job", Schedule: tenMinutes,
			CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, LocalOnly: true, Run: f.handler(0)})
		time.Sleep(time.Minute)
		if st, _ := h.Status().Timer("job"); st.Ticks != 0 || st.Started != 0 {
			t.Errorf("%+v", st)
		}
		f.ended()
	})
}

// A tick during a pause or blackout is not missed, even after the pause or blackout ends. No missed
// tick runs during a pause or blackout.
//
// Fails when schedules.due and blackoutAgain check only the time at which the missed tick would
// run, or only the time at which it was due.
func TestPausesAndBlackoutsAreNotMissed(t *testing.T) {
	dark := schedule.DailyWindow("00:15", "00:35", "UTC")
	for _, c := range []struct {
		name   string
		job    timer.Timer
		back   int // in minutes past midnight
		sleeps bool
		want   int
	}{
		{"after a blackout", timer.Timer{Blackouts: []schedule.Blackout{dark}}, 38, false, 1},
		{"during a blackout", timer.Timer{Schedule: tenMinutes.Offset(4 * time.Minute),
			Blackouts: []schedule.Blackout{dark}}, 20, false, 1},
		{"a tick after the blackout", timer.Timer{Blackouts: []schedule.Blackout{dark}}, 45, false, 2},
		{"asleep until after a blackout", timer.Timer{Blackouts: []schedule.Blackout{dark}}, 38, true, 1},
		{"asleep until in a blackout", timer.Timer{Schedule: tenMinutes.Offset(4 * time.Minute),
			Blackouts: []schedule.Blackout{dark}}, 20, true, 1},
		{"asleep, a tick after the blackout", timer.Timer{Blackouts: []schedule.Blackout{dark}}, 45, true, 2},
		{"after a pause", timer.Timer{}, 38, false, 1},
		{"a tick after the pause", timer.Timer{}, 45, false, 2},
		{"asleep until after a pause", timer.Timer{}, 38, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := c.job
				job.Name, job.CatchUp.Policy, job.Run = "job", timer.CatchUpOnce, f.handler(time.Second)
				if job.Schedule == nil {
					job.Schedule = tenMinutes
				}
				s := &sleeper{}
				h := f.start(timer.Config{TTL: time.Minute}, job, s.timer())
				first := 11
				if c.back == 20 { // its ticks are at 4, 14 and 24 minutes past the hour
					first = 5
				}
				time.Sleep(time.Duration(first) * time.Minute)
				if job.Blackouts == nil {
					until := time.Date(2000, 1, 1, 0, 35, 0, 0, time.UTC)
					if err := h.Control().Pause(t.Context(), "job", until, ann); err != nil {
						t.Fatal(err)
					}
				}
				back := time.Date(2000, 1, 1, 0, c.back, 0, 0, time.UTC)
				if c.sleeps {
					s.sleep(back)
				} else {
					f.ended()
				}
				time.Sleep(time.Until(back) + 2*time.Second)
				if !c.sleeps {
					f.start(timer.Config{}, job, (&sleeper{}).timer())
				}
				time.Sleep(time.Minute)
				if n, last := f.runs("job"); n != c.want {
					t.Errorf("%d runs, the last of %v; want %d", n, last, c.want)
				}
				f.ended()
			})
		})
	}
}

// While the store is down, no missed tick is caught up, because no host knows whether it ran. When
// the store is back, ticks that are then due run.
//
// Fails when acquirer.decide runs a missed tick without the store.
func TestMissedWhileTheStoreIsDown(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("breaker open %v", open), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: tenMinutes, CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce},
					Run: f.handler(time.Second)}
				f.start(timer.Config{}, job)
				time.Sleep(15 * time.Minute)
				f.ended()
				time.Sleep(10 * time.Minute)
				link := dlocktest.NewFaulty(f.store)
				link.Inject(dlocktest.Error(errors.New("down")))
				many := []timer.Timer{job}
				if open { // in the other cases hosts notice the outage before the tick
					for i := range 70 {
						many = append(many, timer.Timer{Name: fmt.Sprint(i), Schedule: schedule.Every(5 * time.Second),
							Run: nop})
					}
					many = many[1:]
				}
				h := f.startOn(link, timer.Config{}, many...)
				if open {
					testkit.Eventually(t, time.Minute, "the breaker is open",
						func() bool { return h.Status().Store.BreakerOpen })
					if err := h.Register(job); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				if st, _ := h.Status().Timer("job"); st.Started != 0 || st.Skipped[timer.ReasonStoreDown] != 1 ||
					st.Ticks != 1 {
					t.Errorf("%+v", st)
				}
				link.Heal()
				time.Sleep(10 * time.Minute)
				if _, last := f.runs("job"); !last.Equal(time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC)) {
					t.Errorf("its last run is of %v", last)
				}
				f.ended()
			})
		})
	}
}

// If a store grants nothing yet, because it restarted together with the hosts, hosts call it again
// when the quarantine ends, and the missed tick runs once in the fleet.
//
// Fails when decide refuses missed ticks, or when a tick that is tried again is no longer marked as
// missed.
func TestMissedDuringQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: tenMinutes, MaxConcurrency: 3, MaxPerTick: 3,
			CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}, Run: f.handler(time.Second)}
		f.start(timer.Config{}, job)
		time.Sleep(15 * time.Minute)
		f.ended()
		time.Sleep(10 * time.Minute)
		for range 3 {
			f.startOn(&quarantine{DistributedLock: f.store, until: time.Now().Add(time.Minute)}, timer.Config{}, job)
		}
		time.Sleep(59 * time.Second)
		if n, _ := f.runs("job"); n != 1 {
			t.Fatalf("%d runs: the store must not grant anything yet", n)
		}
		x, err := f.Hosts[0].Explain(t.Context(), "job", time.Time{})
		if err != nil || !x.Tick.Equal(time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC)) || x.Known ||
			!strings.Contains(x.Text, "being tried on") {
			t.Errorf("%+v, %v", x, err)
		}
		time.Sleep(10 * time.Second)
		if n, last := f.runs("job"); n != 2 || !last.Equal(time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC)) {
			t.Errorf("%d runs, the last of %v", n, last)
		}
		skipped := f.ended()
		if skipped[timer.ReasonTickTaken] != 2 {
			t.Errorf("skipped %v", skipped)
		}
	})
}
