package timer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// versions counts the runs of each version of a timer.
type versions struct {
	mu   sync.Mutex
	runs map[string]int
}

func (v *versions) handler(f *virtualFleet, version string, d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		v.mu.Lock()
		if v.runs == nil {
			v.runs = map[string]int{}
		}
		v.runs[version]++
		v.mu.Unlock()
		return f.handler(d)(ctx)
	}
}

func (v *versions) of(version string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.runs[version]
}

// A run in progress keeps its handler, its MaxRunTime and its retries. Runs that start later have
// the new settings. The old run counts towards the new limits, and its success counts for the
// updated timer. Remove waits for the runs of every version.
//
// Fails when Update waits, when the places of the old timer are not taken over, or when a run of a
// replaced timer is not retried.
func TestUpdateLeavesRunsAlone(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprintf("local %v", local), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var ran versions
				fails := 1
				old := timer.Timer{Name: "a", LocalOnly: local, MaxRunTime: time.Hour,
					Schedule: schedule.Every(time.Minute).Offset(0), Retry: timer.Retry{MaxAttempts: 2},
					Run: func(ctx context.Context) error {
						_ = ran.handler(f, "old", 10*time.Minute)(ctx)
						fails--
						if fails >= 0 {
							return errors.New("try again")
						}
						return context.Cause(ctx)
					}}
				h := f.start(timer.Config{}, old)
				time.Sleep(90 * time.Second) // a run is in progress
				next := timer.Timer{Name: "a", LocalOnly: local, MaxConcurrency: 2, MaxPerTick: 2,
					MaxRunTime: time.Minute,
					Schedule:   schedule.Every(time.Minute).Offset(0), Run: ran.handler(f, "new", 30*time.Second)}
				began := time.Now()
				if err := h.Update(next); err != nil || time.Since(began) != 0 {
					t.Fatal(err, time.Since(began))
				}
				if st, _ := h.Status().Timer("a"); len(st.Running) != 1 || st.Ticks < 1 || st.Started != 1 ||
					st.MaxConcurrency != 2 || st.MaxRunTime != time.Minute || st.Removed || st.Next.IsZero() {
					t.Errorf("%+v", st)
				}
				time.Sleep(10*time.Minute + 5*time.Second) // the old run is retried once
				if st, _ := h.Status().Timer("a"); ran.of("old") != 2 || ran.of("new") != 10 || len(st.Running) != 1 ||
					f.watch.peak["a"] != 2 || st.Running[0].Attempt != 2 || st.Running[0].Overdue {
					t.Errorf("ran %v, at most %d at once: %+v", ran.runs, f.watch.peak["a"], st)
				}
				next.MaxConcurrency = 1 // the old run has taken the only place
				if err := h.Update(next); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				if ran.of("new") != 10 {
					t.Errorf("%d new runs, although an old one takes the only place", ran.of("new"))
				}
				began = time.Now()
				if err := h.Remove(t.Context(), "a"); err != nil || time.Since(began) < 4*time.Minute {
					t.Errorf("Remove: %v after %v, while an earlier run was in progress", err, time.Since(began))
				}
				if len(h.Status().Timers) != 0 {
					t.Errorf("%+v", h.Status().Timers)
				}
				f.Stop()
			})
		})
	}
}

// Update refuses invalid settings with all their faults, and the old timer continues. It also
// refuses a name that is not registered, and any update while the host drains.
//
// Fails when Update removes the timer before it checks the settings.
func TestUpdateRefusesFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var refuses atomic.Bool
		wrap := func(next timer.Handler) timer.Handler {
			if refuses.Load() {
				panic("it wraps nothing")
			}
			return next
		}
		h := f.start(timer.Config{Middleware: []timer.Middleware{wrap}},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		err := h.Update(timer.Timer{Name: "a", Schedule: schedule.Cron("61 * * * *", ""), MaxConcurrency: -3,
			Limits: []string{"none"}})
		for _, fault := range []string{"Run: it is nil", "Schedule", "MaxConcurrency: -3", `no limit "none"`} {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%v: does not tell %s", err, fault)
			}
		}
		if err := h.Update(timer.Timer{Name: "b", Run: f.handler(0)}); !errors.Is(err, timer.ErrNoTimer) {
			t.Error(err)
		}
		if err := h.Update(timer.Timer{Name: "b"}); !errors.Is(err, timer.ErrNoTimer) ||
			!strings.Contains(err.Error(), "Run: it is nil") {
			t.Error(err)
		}
		if err := h.Update(timer.Timer{}); err == nil || errors.Is(err, timer.ErrNoTimer) {
			t.Error(err)
		}
		fails := scheduleFunc(func(at time.Time) time.Time { panic("no calendar") })
		if err := h.Update(timer.Timer{Name: "a", Schedule: fails, Run: f.handler(0)}); err == nil {
			t.Error("a schedule that panics was accepted")
		}
		refuses.Store(true)
		err = h.Update(timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		if err == nil || !strings.Contains(err.Error(), "it wraps nothing") {
			t.Errorf("%v: a middleware that panics was accepted", err)
		}
		refuses.Store(false)
		time.Sleep(10 * time.Minute)
		if st, _ := h.Status().Timer("a"); st.Started != 10 || len(h.Status().Timers) != 1 {
			t.Errorf("%+v", st)
		}
		f.Stop()
		if err := h.Update(timer.Timer{Name: "a", Run: f.handler(0)}); err == nil ||
			!strings.Contains(err.Error(), "shutting down") {
			t.Error(err)
		}
		h.Accounted(t)
	})
}

// A timer is updated at its ticks and in between, by several callers at the same time. With the
// same schedule it runs every tick once, however often it is updated. The timer claims no ticks,
// because a claim would hide a second run.
//
// Fails when the new timer begins now (ticks that are due, delayed or waiting are lost), or does
// not take over the latest due tick (ticks run twice).
func TestUpdateKeepsEveryTick(t *testing.T) {
	for name, change := range map[string]func(tm *timer.Timer, n int){
		"handler":     func(*timer.Timer, int) {},
		"local":       func(tm *timer.Timer, _ int) { tm.LocalOnly = true },
		"no claim":    func(tm *timer.Timer, _ int) { tm.MaxConcurrency, tm.MaxPerTick = timer.NoLimit, timer.NoLimit },
		"jitter":      func(tm *timer.Timer, n int) { tm.Delay.Jitter = 0.5 * float64(n%2) },
		"delay":       func(tm *timer.Timer, n int) { tm.Delay.ByTimer = time.Duration(n%3) * 5 * time.Second },
		"cron":        func(tm *timer.Timer, _ int) { tm.Schedule = schedule.Cron("* * * * *", "") },
		"own":         func(tm *timer.Timer, _ int) { tm.Schedule = scheduleFunc(ownMinutely) },
		"yields":      func(tm *timer.Timer, _ int) { tm.LeastRecentFirst = true },
		"concurrency": func(tm *timer.Timer, n int) { tm.MaxConcurrency, tm.MaxPerTick = 1+n%3, timer.NoLimit },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var n atomic.Int64
				version := func() timer.Timer {
					tm := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute).Offset(0),
						MaxPerTick: timer.NoLimit, CatchUp: timer.CatchUp{Policy: timer.CatchUpSkip},
						Run: f.handler(0)}
					change(&tm, int(n.Add(1)))
					return tm
				}
				h := f.start(timer.Config{}, version())
				if name == "yields" {
					f.start(timer.Config{}, version())
				}
				begin := time.Now()
				updated, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for _, pause := range []time.Duration{time.Minute, 20 * time.Second, 7 * time.Second,
					131 * time.Millisecond} {
					all.Go(func() {
						time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
						for updated.Err() == nil {
							if err := h.Update(version()); err != nil {
								t.Error(err)
							}
							_ = sleep(updated, pause)
						}
					})
				}
				time.Sleep(time.Duration(testkit.Rounds(t, 4, 60))*time.Minute + 45*time.Second)
				stop()
				all.Wait()
				f.Stop()
				ran, most := f.watch.ticks("a")
				want := int(time.Since(begin).Truncate(time.Minute)/time.Minute) + 1
				if ran < want-2 || ran > want || name != "yields" && most != 1 {
					t.Errorf("%d ticks of about %d ran, one of them %d times", ran, want, most)
				}
				started, skipped := h.Accounted(t)
				if name == "yields" { // to the other host, which may have the only slot
					started, skipped = started+skipped[timer.ReasonFull], nil
				}
				if int(started) != ran || len(skipped) != 0 {
					t.Errorf("%d ticks started, %d ran, skipped %v", started, ran, skipped)
				}
			})
		})
	}
}

func ownMinutely(at time.Time) time.Time { return at.Truncate(time.Minute).Add(time.Minute) }

// As in a rolling deployment, hosts are updated one after the other, up and down. Together they
// never have more valid runs than the largest MaxConcurrency, and no tick starts more than
// MaxPerTick runs.
//
// Fails when a run of the old timer is no longer counted.
func TestI1UpdateKeepsLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		version := func(n int) timer.Timer {
			return timer.Timer{Name: "a", MaxConcurrency: n, MaxPerTick: 2, Limits: []string{"smtp", "disk"}[:n%3],
				Schedule: schedule.Every(time.Second), Run: f.handler(2700 * time.Millisecond)}
		}
		config := timer.Config{Limits: []timer.Limit{{Name: "smtp", Size: 3}, {Name: "disk", Size: 4}}}
		for range 4 {
			f.start(config, version(1))
		}
		for n := range 300 {
			time.Sleep(737 * time.Millisecond)
			if err := f.Hosts[n%4].Update(version([]int{3, 1, 2, 3, 2}[n%5])); err != nil {
				t.Fatal(err)
			}
		}
		f.Stop()
		f.watch.check(t)
		if peak := f.watch.peak["a"]; peak > 3 || peak < 2 {
			t.Errorf("%d runs at once, the largest limit is 3", peak)
		}
		if ran, most := f.watch.ticks("a"); ran < 100 || most > 2 {
			t.Errorf("%d ticks ran, one of them %d times", ran, most)
		}
		for _, h := range f.Hosts {
			h.Accounted(t)
			for _, l := range h.Status().Limits {
				if l.Runs != 0 {
					t.Errorf("%d runs hold the limit %s after all have ended", l.Runs, l.Name)
				}
			}
		}
	})
}

// A pause and other overrides survive an Update, and so do the alarm and the counts. A timer that
// becomes LocalOnly has no overrides.
//
// Fails when the new timer starts with its own state.
func TestUpdateKeepsOverridesAndCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		bad := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), AlarmAfter: 3,
			Run: func(context.Context) error { return errors.New("no") }}
		reg := newRegistry()
		h := f.start(timer.Config{Registerer: reg}, bad)
		time.Sleep(150 * time.Second)
		if err := h.Update(bad); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Second)
		st, _ := h.Status().Timer("a")
		if err := h.TimersSucceed(); err == nil || st.Ticks != 5 || st.TicksSinceSuccess != 5 || st.Last == nil {
			t.Errorf("%v: %+v", err, st)
		}
		if v := values(t, reg)["tickslot_ticks_total started a"]; v != 5 {
			t.Errorf("the metrics count %v ticks that started", v)
		}
		control, by := h.Control(), driver.Cause{By: "ann"}
		if err := errors.Join(control.Pause(t.Context(), "a", time.Now().Add(time.Hour), by),
			control.SetMaxConcurrency(t.Context(), "a", 2, by)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		good := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: f.handler(0)}
		if err := h.Update(good); err != nil {
			t.Fatal(err)
		}
		if st, _ := h.Status().Timer("a"); st.Paused == nil || st.LimitOverride != 2 || st.MaxConcurrency != 2 {
			t.Errorf("%+v", st)
		}
		time.Sleep(10 * time.Minute)
		if ran, _ := f.watch.ticks("a"); ran != 0 {
			t.Errorf("%d runs during a pause", ran)
		}
		good.LocalOnly = true
		if err := h.Update(good); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		st, _ = h.Status().Timer("a")
		if ran, _ := f.watch.ticks("a"); ran != 10 || st.Paused != nil || st.LimitOverride != 0 ||
			st.MaxConcurrency != 1 || h.TimersSucceed() != nil {
			t.Errorf("%d runs: %+v", ran, st)
		}
		f.Stop()
		h.Accounted(t)
	})
}

// A timer with a different schedule begins now. It does not make up for ticks that the old schedule
// missed or delayed, and a tick of both schedules starts only once.
//
// Fails when the new timer takes over the next tick of the old schedule, or catches up.
func TestUpdateToAnotherSchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		day := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		sleepUntil(day.Add(-time.Hour))
		at := func(clock string) timer.Timer {
			return timer.Timer{Name: "a", Schedule: schedule.Daily(clock, ""), MaxConcurrency: 2,
				MaxPerTick: timer.NoLimit, Run: f.handler(0)}
		}
		h := f.start(rarely, at("02:00"))
		sleepUntil(day.Add(14*time.Hour + 30*time.Minute))
		for _, update := range []timer.Timer{at("14:00"), at("02:00"), at("14:00")} {
			if err := h.Update(update); err != nil {
				t.Fatal(err)
			}
		}
		if st, _ := h.Status().Timer("a"); !st.Next.Equal(day.Add(38 * time.Hour)) {
			t.Errorf("next %v", st.Next)
		}
		sleepUntil(day.Add(38 * time.Hour))
		synctest.Wait()
		hourly := at("")
		hourly.Schedule = schedule.Every(time.Hour).Offset(0)
		if err := h.Update(hourly); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour + time.Minute)
		if ran, most := f.watch.ticks("a"); ran != 4 || most != 1 {
			t.Errorf("%d ticks ran, want 02:00, 14:00, 15:00 and 16:00, one of them %d times", ran, most)
		}
		onDemand := timer.Timer{Name: "a", Run: f.handler(0)}
		if err := h.Update(onDemand); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if st, _ := h.Status().Timer("a"); st.Ticks != 4 || !st.Next.IsZero() || st.Schedule != "" {
			t.Errorf("%+v", st)
		}
		if err := h.Update(hourly); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if st, _ := h.Status().Timer("a"); st.Ticks != 5 {
			t.Errorf("%+v", st)
		}
		f.Stop()
		h.Accounted(t)
	})
}

// Update may be called before Run and while Run begins, by a handler for its own timer, and by a
// schedule. If a timer is updated after its last tick has passed, it begins again.
//
// Fails when planner.proceed and planner.begin both plan a timer, or when Update holds a mutex
// while it calls a schedule.
func TestUpdateAnyTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		minutely := schedule.Every(time.Minute).Offset(0)
		tm := timer.Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: f.handler(0), MaxPerTick: timer.NoLimit}
		h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{}, tm)
		tm.Schedule = minutely
		for range 3 {
			if err := h.Update(tm); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for range 100 {
					if err := h.Update(tm); err != nil {
						t.Error(err)
					}
				}
			})
		}
		f.Run(t.Context(), h)
		all.Wait()
		time.Sleep(10*time.Minute + time.Second)
		if ran, most := f.watch.ticks("a"); ran != 10 || most != 1 {
			t.Errorf("%d ticks ran, one of them %d times", ran, most)
		}
		self := tm
		self.Run = func(ctx context.Context) error {
			if err := h.Update(tm); err != nil {
				t.Error(err)
			}
			return h.Remove(ctx, "a") // it does not wait for its own run
		}
		if err := h.Update(self); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 2*time.Minute, "it has removed itself",
			func() bool { return len(h.Status().Timers) == 0 })
		if err := h.Register(timer.Timer{Name: "a", Schedule: schedule.At(time.Now().Add(time.Second)),
			Run: f.handler(0)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		asks := tm
		asks.Schedule = scheduleFunc(func(at time.Time) time.Time {
			if err := h.Update(timer.Timer{Name: "none", Run: f.handler(0)}); !errors.Is(err, timer.ErrNoTimer) {
				t.Error(err)
			}
			return ownMinutely(at)
		})
		if err := h.Update(asks); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if st, ok := h.Status().Timer("a"); !ok || st.Started < 30 {
			t.Errorf("%+v", st)
		}
		f.Stop()
		h.Accounted(t)
	})
}
