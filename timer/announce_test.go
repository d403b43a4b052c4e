package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The first tick of a timer is due while every host that had the timer is restarting. The next host
// that starts runs that tick, as it would run a later one. After that no other host runs it.
//
// Fails when no host announces schedules, when Register, Update or a later round does not announce
// them, or when an announcement is given up because the store does not answer.
func TestAFirstTickInARestartIsCaughtUp(t *testing.T) {
	one := schedule.At(at(1, 1, 0))
	for _, c := range []struct {
		name     string
		schedule schedule.Schedule
		up       func(f *virtualFleet, job timer.Timer) // starts a host an hour before the tick
	}{
		{"an instant", one, startTwo},
		{"a day", schedule.Daily("01:00", ""), startTwo},
		{"a year", schedule.Cron("0 1 1 1 *", ""), startTwo},
		{"registered later", one, func(f *virtualFleet, job timer.Timer) {
			if err := f.start(timer.Config{}).Register(job); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"updated", one, func(f *virtualFleet, job timer.Timer) {
			was := job
			was.Schedule = schedule.At(at(5, 1, 0))
			h := f.start(timer.Config{}, was)
			time.Sleep(time.Minute)
			if err := h.Update(job); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"the store was down", one, func(f *virtualFleet, job timer.Timer) {
			h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{}, job)
			h.Link.Inject(dlocktest.Error(errors.New("refused")))
			f.Run(f.t.Context(), h)
			time.Sleep(10 * time.Minute)
			h.Link.Heal()
		}},
		{"the store lost its data", schedule.At(at(4, 1, 0)), func(f *virtualFleet, job timer.Timer) {
			store := &losingStore{Store: f.store, before: memlock.New()}
			f.startOn(store, rarely, job)
			time.Sleep(time.Hour)
			store.lost.Store(true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: c.schedule, Run: f.handler(time.Second)}
				tick := c.schedule.Next(time.Now())
				c.up(f, job)
				sleepUntil(tick.Add(-30 * time.Second))
				f.ended()
				sleepUntil(tick.Add(30 * time.Second))
				startTwo(f, job)
				time.Sleep(time.Minute)
				startTwo(f, job)
				time.Sleep(time.Minute)
				f.wantRuns("after the restart", "job", 1, tick)
				f.Stop()
			})
		})
	}
}

// A losingStore switches to an empty store once lost is set.
type losingStore struct {
	*memlock.Store
	before *memlock.Store
	lost   atomic.Bool
}

func (s *losingStore) now() *memlock.Store {
	if s.lost.Load() {
		return s.Store
	}
	return s.before
}

func (s *losingStore) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return s.now().TryAcquire(ctx, req)
}

func (s *losingStore) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return s.now().Extend(ctx, ttl, grants...)
}

func startTwo(f *virtualFleet, job timer.Timer) {
	for range 2 {
		f.start(timer.Config{}, job)
	}
}

// Like TestAFirstTickInARestartIsCaughtUp, on real servers. A tick is due after the only host has
// stopped and before it starts again.
//
// Fails when no host announces schedules.
func TestAFirstTickOnRealServers(t *testing.T) {
	for name, on := range map[string]func(*testing.T) func() dlock.DistributedLock{
		"Redis": onRedis, "Postgres": onPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := on(t)()
			awaitGrants(t, store)
			tick, ran := time.Time{}, make(chan *timer.Run, 10)
			start := func() (announced chan struct{}, stop func()) {
				announced = make(chan struct{}, 1000)
				h, err := timer.New(timer.Config{Store: store, TTL: 9 * time.Second, StoreTimeout: 3 * time.Second,
					Logger: slog.New(slog.DiscardHandler), Hooks: timer.Hooks{StoreCalled: func(c dlock.StoreCall) {
						no, ok := errors.AsType[*dlock.NotAcquiredError](c.Err)
						if ok && no.Reason == driver.ReasonTickFirst {
							announced <- struct{}{}
						}
					}}},
					timer.Timer{Name: fmt.Sprint("job", tick.UnixMicro()), Schedule: schedule.At(tick),
						Run: func(ctx context.Context) error {
							r, _ := timer.RunFromContext(ctx)
							ran <- r
							return nil
						}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- h.Run(ctx) }()
				return announced, func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			}
			for lead := 2 * time.Second; !time.Now().Before(tick); lead *= 2 { // until the host stops before the tick
				tick = time.Now().Add(lead).Truncate(time.Microsecond)
				announced, stop := start()
				testkit.Eventually(t, testkit.Patience, "the schedule is announced",
					func() bool { return len(announced)+len(ran) > 0 })
				stop()
			}
			sleepUntil(tick.Add(10 * time.Millisecond))
			for len(ran) > 0 { // an earlier attempt was too slow
				<-ran
			}
			_, stop := start()
			defer stop()
			testkit.Eventually(t, testkit.Patience, "the tick is caught up", func() bool { return len(ran) > 0 })
			if r := <-ran; !r.Tick().Equal(tick) || !r.CaughtUp() {
				t.Errorf("a run of %v, caught up: %v; want %v", r.Tick(), r.CaughtUp(), tick)
			}
		})
	}
}

// If a timer is registered after its only tick, and no host had the timer before, it has missed
// nothing.
//
// Fails when a schedule is announced as known since before the registration.
func TestATimerThatIsNewHasMissedNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: schedule.Daily("01:00", ""), Run: f.handler(time.Second)}
		sleepUntil(at(1, 1, 0).Add(time.Minute))
		for range 3 {
			f.start(timer.Config{}, job)
			time.Sleep(time.Minute)
			f.ended()
		}
		if n, _ := f.runs("job"); n != 0 {
			t.Errorf("%d runs", n)
		}
	})
}

// With default settings, a weekly interval misses no week, although each of its ticks is due while
// the whole fleet is being deployed.
//
// Fails when a missed tick of a long interval is skipped by default.
func TestAWeeklyIntervalSurvivesDeploys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const week = 7 * 24 * time.Hour
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: schedule.Every(week).From(at(2, 0, 0)), Run: f.handler(time.Second)}
		f.start(rarely, job)
		for i := range 4 {
			tick := at(2, 0, 0).Add(time.Duration(i) * week)
			sleepUntil(tick.Add(-20 * time.Second))
			f.ended()
			time.Sleep(40 * time.Second)
			f.start(rarely, job)
			time.Sleep(time.Minute)
			f.wantRuns("after a deploy", "job", i+1, tick)
		}
		f.Stop()
	})
}

// For the store, a timer that every host has removed is the same as a timer whose fleet is down. If
// the timer returns soon after a tick, it runs that tick, unless it has CatchUpSkip. A tick during
// a pause is not missed.
//
// Fails when a timer that returns is treated as new, or when a pause is forgotten.
func TestATimerThatWasRemovedComesBack(t *testing.T) {
	for name, want := range map[string]int{"removed": 3, "removed for long": 2, "skips": 2, "paused": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: schedule.Cron("0 * * * *", ""), Run: f.handler(time.Second)}
				back := at(1, 7, 10)
				switch name {
				case "skips":
					job.CatchUp.Policy = timer.CatchUpSkip
				case "removed for long":
					job.CatchUp.Window = 5 * time.Minute
				}
				h := f.start(timer.Config{}, job)
				sleepUntil(at(1, 2, 10))
				if name == "paused" {
					if err := h.Control().Pause(t.Context(), "job", back, ann); err != nil {
						t.Fatal(err)
					}
				} else if err := h.Remove(t.Context(), "job"); err != nil {
					t.Fatal(err)
				}
				sleepUntil(back)
				if name != "paused" {
					if err := h.Register(job); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				if n, last := f.runs("job"); n != want {
					t.Errorf("%d runs, the last of %v; want %d", n, last, want)
				}
				f.Stop()
			})
		})
	}
}

// Each of a thousand timers is announced once, in the order in which they are due, at most 200 per
// second. They are not announced again for half a day. A timer is not announced if its missed ticks
// do not run, or if the host has claimed one of its ticks.
//
// Fails when the announcer makes calls without a pause, repeats calls, or announces every timer.
func TestAnnouncementsAreFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 1000
		f := newFleet(t)
		var timers []timer.Timer
		for i := range n {
			timers = append(timers, timer.Timer{Name: fmt.Sprint("t", i), Schedule: schedule.Cron(
				fmt.Sprintf("%d %d * * *", i%60, 4+i/60), ""), Run: nop})
		}
		timers = append(timers, timer.Timer{Name: "skips", Schedule: schedule.Daily("20:30", ""), Run: nop,
			CatchUp: timer.CatchUp{Policy: timer.CatchUpSkip}},
			timer.Timer{Name: "today", Schedule: schedule.Daily("02:30", ""), Run: nop})
		calls := map[string]int{}
		var first string
		var second, inSecond, most int64
		count := func(c dlock.StoreCall) {
			if c.Op != dlock.StoreOpAcquire || !strings.HasPrefix(c.Name, "timer:") {
				return
			}
			if first == "" {
				first = c.Name
			}
			calls[c.Name]++
			if now := c.StartedAt.Unix(); now != second {
				second, inSecond = now, 0
			}
			inSecond++
			most = max(most, inSecond)
		}
		sleepUntil(at(1, 3, 0).Add(30 * time.Second))
		h := f.start(timer.Config{Hooks: timer.Hooks{StoreCalled: count}}, timers...)
		time.Sleep(28 * time.Second)
		h.Stopped(t)
		for name, n := range calls {
			if n != 1 {
				t.Errorf("%s was announced %d times", name, n)
			}
		}
		if len(calls) != n+1 || calls["timer:skips"] > 0 || most > 200 ||
			first != "timer:t0" && first != "timer:today" {
			t.Errorf("%d of %d were announced, %q first, up to %d in one second", len(calls), n+1,
				first, most)
		}
	})
}
