package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// With RunOnStartOnce, a new timer runs once in the fleet, for its latest tick, whatever its
// MaxPerTick and in whatever order the hosts start. Neither a rolling deployment nor a crash
// repeats the run before the next tick, which runs as usual.
//
// Fails when tick.claim gives the tick of a start MaxPerTick, or makes no claim, or when
// schedules.atOnce uses the time of the start.
func TestRunOnStartOnceInTheFleet(t *testing.T) {
	for _, c := range []struct {
		perTick int
		apart   time.Duration
		delay   time.Duration
	}{{1, 0, 0}, {3, 0, 0}, {5, 3 * time.Second, 0}, {1, 70 * time.Second, 0}, {3, time.Second, 7 * time.Minute}} {
		t.Run(fmt.Sprint(c.perTick, c.apart, c.delay), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: tenMinutes, MaxConcurrency: 5, MaxPerTick: c.perTick,
					Delay: timer.Delay{ByTimer: c.delay}, RunOnStart: timer.RunOnStartOnce, Run: f.handler(time.Second)}
				time.Sleep(9 * time.Minute)
				began := time.Now()
				latest := began.Truncate(10 * time.Minute).UTC()
				for range 5 {
					f.start(timer.Config{}, job)
					time.Sleep(c.apart)
				}
				h := f.Hosts[0]
				h.Stopped(t) // a deployment
				h.Accounted(t)
				f.Hosts = f.Hosts[1:]
				f.start(timer.Config{}, job)
				time.Sleep(2 * time.Second)
				if n := f.watch.startsOf("job", latest); n != 1 {
					t.Errorf("the latest tick had %d runs", n)
				}
				usual := min(c.perTick, 5)
				time.Sleep(time.Until(latest.Add(18 * time.Minute)))
				if n, _ := f.runs("job"); n != 1+usual {
					t.Errorf("%d runs at the start and of the tick after it, want %d", n, 1+usual)
				}
				if skipped := f.ended(); skipped[timer.ReasonTickTaken] == 0 && c.perTick == 1 {
					t.Errorf("skipped %v", skipped)
				}
				f.watch.check(t)
			})
		})
	}
}

// With RunOnStartEachHost, every host runs the timer at every start, with or without a Schedule,
// even if the latest tick ran a moment ago. MaxConcurrency holds. Without a store, RunOnStartOnce
// does the same, because nothing records past runs.
//
// Fails when a start of a host claims a tick, or when planner.begin considers only timers that have
// a Schedule.
func TestRunOnStartEachHost(t *testing.T) {
	for _, job := range []timer.Timer{
		{RunOnStart: timer.RunOnStartEachHost, Schedule: tenMinutes, MaxConcurrency: 5, MaxPerTick: 1},
		{RunOnStart: timer.RunOnStartEachHost, Schedule: tenMinutes, MaxConcurrency: timer.NoLimit,
			MaxPerTick: timer.NoLimit},
		{RunOnStart: timer.RunOnStartEachHost, MaxConcurrency: 5},
		{RunOnStart: timer.RunOnStartOnce, LocalOnly: true},
		{RunOnStart: timer.RunOnStartOnce, LocalOnly: true, Schedule: tenMinutes},
	} {
		t.Run(fmt.Sprintf("%v, schedule %v, local %v", job.RunOnStart, job.Schedule != nil, job.LocalOnly),
			func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					job.Name, job.Run = "job", f.handler(time.Second)
					time.Sleep(9*time.Minute + 55*time.Second)
					for range 3 {
						h := f.start(timer.Config{}, job)
						began := time.Now()
						time.Sleep(500 * time.Millisecond)
						st, _ := h.Status().Timer("job")
						if len(st.Running) != 1 || !st.Running[0].OnStart || !st.Running[0].Tick.Equal(began) {
							t.Errorf("%+v, started at %v", st, began)
						}
					}
					time.Sleep(time.Minute)
					n, _ := f.runs("job")
					want := 3
					if job.Schedule != nil { // the tick at 00:10, which is independent of the starts
						want++
						if job.LocalOnly || job.MaxConcurrency == timer.NoLimit {
							want += 2
						}
					}
					if n != want {
						t.Errorf("%d runs, want %d", n, want)
					}
					f.ended()
				})
			})
	}
	t.Run("one at a time", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := newFleet(t)
			job := timer.Timer{Name: "job", RunOnStart: timer.RunOnStartEachHost, Run: f.handler(time.Second)}
			for range 3 {
				f.start(timer.Config{}, job)
			}
			time.Sleep(time.Minute)
			if n, _ := f.runs("job"); n != 1 {
				t.Errorf("%d runs, with MaxConcurrency 1", n)
			}
			if skipped := f.ended(); skipped[timer.ReasonFull] != 2 {
				t.Errorf("skipped %v", skipped)
			}
		})
	})
}

// The run at a start is refused for the same reasons as any tick. It is then skipped with its
// reason, and not made up for. While the store is down OnStoreDown decides. During a quarantine the
// run waits.
//
// Fails when the blackouts are not called for the tick of a start, when acquirer.decide treats it
// as a missed tick, or when the gate lets it pass.
func TestRunOnStartIsRefused(t *testing.T) {
	night := []schedule.Blackout{schedule.DailyWindow("00:00", "00:20", "UTC")}
	for _, c := range []struct {
		name   string
		job    timer.Timer
		config timer.Config
		before func(t *testing.T, f *virtualFleet)
		fault  dlocktest.Fault
		want   int
		reason timer.Reason
	}{
		{name: "in a blackout", job: timer.Timer{Blackouts: night}, reason: timer.ReasonBlackout},
		{name: "in a blackout of all timers", config: timer.Config{Blackouts: night}, reason: timer.ReasonBlackout},
		{name: "in a blackout that panics", reason: timer.ReasonBlackout,
			job: timer.Timer{Blackouts: []schedule.Blackout{nil}}},
		{name: "while it is paused", reason: timer.ReasonPaused, before: func(t *testing.T, f *virtualFleet) {
			if err := f.Hosts[0].Control().Pause(t.Context(), "job", time.Now().Add(time.Hour), ann); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "while a run goes on", reason: timer.ReasonFull, before: func(t *testing.T, f *virtualFleet) {
			trigger(t, f.Hosts[0], "job")
		}},
		{name: "while a limit is full", config: smtp(1), job: timer.Timer{Limits: []string{"smtp"}},
			before: func(t *testing.T, f *virtualFleet) { trigger(t, f.Hosts[0], "mail") },
			reason: timer.ReasonLimitFull},
		{name: "while the store is down", fault: down, want: 1},
		{name: "while the store is down, with StoreDownSkip", fault: down,
			job: timer.Timer{OnStoreDown: timer.StoreDownSkip}, reason: timer.ReasonStoreDown},
		{name: "while the store finds a fault", fault: dlocktest.Error(errBadKey), reason: timer.ReasonStoreFault},
	} {
		for _, policy := range []timer.RunOnStartPolicy{timer.RunOnStartOnce, timer.RunOnStartEachHost} {
			t.Run(fmt.Sprintf("%s, %v", c.name, policy), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					time.Sleep(5 * time.Minute)
					busy := f.handler(time.Minute)
					f.start(smtp(1), timer.Timer{Name: "job", Schedule: tenMinutes, Run: busy},
						timer.Timer{Name: "mail", Limits: []string{"smtp"}, Run: busy})
					if c.before != nil {
						c.before(t, f)
					}
					var ran atomic.Int64
					job := c.job
					job.Name, job.Schedule, job.RunOnStart = "job", tenMinutes, policy
					job.Run = func(context.Context) error { ran.Add(1); return nil }
					if slices.Contains(job.Blackouts, nil) {
						job.Blackouts = []schedule.Blackout{panicsOnceAsked()}
					}
					h := f.startNow(c.fault, c.config, job)
					time.Sleep(4 * time.Minute) // the next tick is due a minute later
					if n := ran.Load(); int(n) != c.want {
						t.Errorf("%d runs, want %d", n, c.want)
					}
					started, skipped := h.Accounted(t)
					if int(started) != c.want || c.reason != "" && skipped[c.reason] != 1 || len(skipped)+c.want != 1 {
						t.Errorf("%d started, skipped %v", started, skipped)
					}
					h.Link.Heal()
					f.Stop()
				})
			})
		}
	}
}

// panicsOnceAsked returns a blackout that works when the timer is checked, and panics from the
// second call on.
func panicsOnceAsked() schedule.Blackout {
	asked := 0
	return schedule.BlackoutFunc(func(time.Time) bool {
		if asked++; asked > 1 {
			panic("the calendar is gone")
		}
		return false
	})
}

// While a restarted store is in quarantine, the run at a start waits. If the next tick is due
// before the quarantine ends, the run is skipped.
//
// Fails when mayWait treats the tick of a start as overtaken.
func TestRunOnStartInQuarantine(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		waits bool
	}{{10 * time.Minute, true}, {20 * time.Second, false}} {
		for _, policy := range []timer.RunOnStartPolicy{timer.RunOnStartOnce, timer.RunOnStartEachHost} {
			bubbles := func(t *testing.T) {
				f := newFleet(t)
				time.Sleep(5 * time.Second)
				store := &quarantine{DistributedLock: f.store, until: time.Now().Add(31 * time.Second)}
				h := f.startOn(store, timer.Config{}, timer.Timer{Name: "job",
					Schedule: schedule.Every(c.every).Offset(0), RunOnStart: policy, Run: f.handler(0)})
				time.Sleep(32 * time.Second)
				st, _ := h.Status().Timer("job")
				if st.Started != 1 || st.Last == nil || st.Last.OnStart != c.waits ||
					!c.waits && st.Skipped[timer.ReasonQuarantine] != 1 {
					t.Errorf("%+v", st)
				}
				f.ended()
			}
			t.Run(fmt.Sprint(c.every, policy), func(t *testing.T) { bubble(t, bubbles) })
		}
	}
}

// If all instants of a Schedule are in the future, no run starts with the host. If all have passed,
// one run starts. A timer that is registered while Run is running also runs at its start.
//
// Fails when atOnce looks for a future tick, or looks back only for CatchUp.Window.
func TestRunOnStartOfInstants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		day := 24 * time.Hour
		at := func(name string, in ...time.Duration) timer.Timer {
			var instants []time.Time
			for _, d := range in {
				instants = append(instants, time.Now().Add(d))
			}
			return timer.Timer{Name: name, Schedule: schedule.At(instants...), RunOnStart: timer.RunOnStartOnce,
				Run: f.handler(0)}
		}
		list := []timer.Timer{at("past", -20*day, -10*day), at("to come", 10*day), at("both", -300*day, 10*day)}
		h := f.start(timer.Config{}, list...)
		other := f.start(timer.Config{})
		if err := other.Register(list...); err != nil {
			t.Fatal(err)
		}
		if err := other.Remove(t.Context(), "both"); err != nil {
			t.Fatal(err)
		}
		if err := other.Register(list[2]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for name, want := range map[string]int{"past": 1, "to come": 0, "both": 1} {
			if n, _ := f.runs(name); n != want {
				t.Errorf("%s: %d runs, want %d", name, n, want)
			}
		}
		if _, last := f.runs("both"); time.Since(last) < 200*day {
			t.Errorf("the run was of %v", last)
		}
		time.Sleep(20 * time.Minute)
		if _, ok := h.Status().Timer("past"); ok {
			t.Error("a timer without a further instant does not leave")
		}
		f.ended()
	})
}

// A run that RunOnStart started is marked wherever runs are shown: for the handler, in hooks, in
// Status and in the log.
//
// Fails when newRun or a decision does not record what started the run.
func TestRunOnStartIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var log testkit.Log
		var x told
		time.Sleep(5 * time.Minute)
		seen := make(chan bool, 1)
		debug := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		h := f.start(timer.Config{Hooks: x.hooks(), Logger: debug}, timer.Timer{Name: "job", Schedule: tenMinutes,
			RunOnStart: timer.RunOnStartOnce, Run: func(ctx context.Context) error {
				r, _ := timer.RunFromContext(ctx)
				seen <- r.OnStart() && !r.CaughtUp()
				return errors.New("no luck")
			}})
		if !<-seen {
			t.Error("the run does not know")
		}
		time.Sleep(time.Second)
		st, _ := h.Status().Timer("job")
		if st.Ticks != 1 || st.Started != 1 || st.Last == nil || !st.Last.OnStart ||
			st.RunOnStart != timer.RunOnStartOnce || st.TicksSinceSuccess != 1 {
			t.Errorf("%+v", st)
		}
		e, err := h.Explain(t.Context(), "job", time.Time{})
		if err != nil || !strings.Contains(e.Text, "because of RunOnStart") {
			t.Errorf("%v, %v", e, err)
		}
		time.Sleep(10 * time.Minute)
		<-seen
		f.Stop()
		if e, err := h.Explain(t.Context(), "job", time.Time{}); err != nil || strings.Contains(e.Text, "RunOnStart") {
			t.Errorf("%v, %v", e, err)
		}
		want := []bool{true, false}
		var started, ended []bool
		for i := range x.started {
			started, ended = append(started, x.started[i].OnStart), append(ended, x.ended[i].OnStart)
		}
		if !slices.Equal(started, want) || !slices.Equal(ended, want) {
			t.Errorf("hooks got %v, %v", started, ended)
		}
		if n := strings.Count(log.String(), "on_start=true"); n != 2 { // in the lines of its start and its end
			t.Errorf("%d lines have on_start:\n%s", n, log.String())
		}
	})
}

// A RunOnStart that is not possible is a fault, and the error explains the fix.
//
// Fails when Timer.check ignores RunOnStart.
func TestRunOnStartFaults(t *testing.T) {
	good := timer.Timer{Name: "job", Schedule: tenMinutes, RunOnStart: timer.RunOnStartOnce, Run: nop}
	for _, c := range []struct {
		change func(*timer.Timer)
		want   string
	}{
		{func(*timer.Timer) {}, ""},
		{func(t *timer.Timer) { t.RunOnStart = 9 }, "RunOnStart: 9 is not a policy"},
		{func(t *timer.Timer) { t.Schedule = nil }, "without a Schedule"},
		{func(t *timer.Timer) { t.Schedule, t.LocalOnly = nil, true }, ""},
		{func(t *timer.Timer) { t.Schedule, t.RunOnStart = nil, timer.RunOnStartEachHost }, ""},
		{func(t *timer.Timer) { t.MaxPerTick = timer.NoLimit }, "MaxPerTick: NoLimit"},
		{func(t *timer.Timer) { t.MaxConcurrency = timer.NoLimit }, "MaxPerTick: timer.NoLimit"},
		{func(t *timer.Timer) { t.MaxPerTick, t.RunOnStart = timer.NoLimit, timer.RunOnStartEachHost }, ""},
	} {
		job := good
		c.change(&job)
		_, err := timer.New(timer.Config{Store: memlock.New()}, job)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
