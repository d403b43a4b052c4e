package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// peakOf returns the largest number of simultaneous runs of a timer.
func (w *watcher) peakOf(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak[name]
}

// forgetTriggers removes the runs without a tick from the counts of ticks.
func (w *watcher) forgetTriggers(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.starts[name], time.Time{})
}

// A timer that is due every minute and takes 61 seconds runs back to back, not every second minute.
// On one host there is no pause between runs, with or without a store. In a fleet a run starts no
// later than TTL/3 after the previous run has ended. Each tick runs once, and no two runs overlap.
//
// Fails when runEnded wakes nothing, or when a tick that the store refuses does not wait.
func TestFullWaitRunsBackToBack(t *testing.T) {
	for _, c := range []struct {
		hosts int
		local bool
		most  time.Duration // between two runs
	}{{1, true, 0}, {1, false, 0}, {5, false, 5 * time.Second}} {
		t.Run(fmt.Sprintf("%d hosts, local %v", c.hosts, c.local), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var ended atomic.Int64
				var longest, begun atomic.Int64
				job := timer.Timer{Name: "job", Schedule: schedule.Every(time.Minute).Offset(0), OnFull: timer.FullWait,
					LocalOnly: c.local, Run: func(ctx context.Context) error {
						defer f.watch.enter(ctx)()
						if before := ended.Load(); before != 0 {
							longest.Store(max(longest.Load(), int64(time.Since(time.UnixMicro(before)))))
						}
						begun.Add(1)
						err := sleep(ctx, 61*time.Second)
						ended.Store(time.Now().UnixMicro())
						return err
					}}
				for range c.hosts {
					f.start(timer.Config{}, job)
				}
				time.Sleep(time.Hour)
				if n := begun.Load(); n < 55 {
					t.Errorf("%d runs in an hour", n)
				}
				if gap := time.Duration(longest.Load()); gap > c.most {
					t.Errorf("%v between two runs", gap)
				}
				if _, most := f.watch.ticks("job"); most != 1 || f.watch.peakOf("job") != 1 {
					t.Errorf("a tick ran %d times, %d runs at once", most, f.watch.peakOf("job"))
				}
				f.ended()
				f.watch.check(t)
			})
		})
	}
}

// At most one tick of each timer waits, the latest. The earlier ones are skipped, as without
// FullWait. Status shows which tick waits. No tick waits for longer than MaxWait.
//
// Fails when gate.try leaves the earlier tick waiting, or when nothing ends the wait.
func TestFullWaitOneTickWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{MaxWait: 90 * time.Second},
			timer.Timer{Name: "often", Schedule: schedule.Every(10 * time.Second).Offset(0), OnFull: timer.FullWait,
				Run: f.handler(5*time.Minute + 3*time.Second)},
			timer.Timer{Name: "rare", Schedule: tenMinutes, OnFull: timer.FullWait, Run: f.handler(12 * time.Minute)})
		time.Sleep(4*time.Minute + 5*time.Second)
		often, _ := h.Status().Timer("often")
		if now := time.Now().Truncate(10 * time.Second); !often.WaitingTick.Equal(now) || often.Started != 1 ||
			often.Skipped[timer.ReasonHostFull] != often.Ticks-2 {
			t.Errorf("%+v at %v", often, now)
		}
		time.Sleep(75 * time.Second) // it is now 5:20; the run ended at 5:13
		if often, _ = h.Status().Timer("often"); often.Started != 2 || len(often.Running) != 1 ||
			often.Running[0].Tick.Minute() != 5 || often.Running[0].Tick.Second() != 10 {
			t.Errorf("%+v", often)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(21*time.Minute + 20*time.Second)))
		if rare, _ := h.Status().Timer("rare"); rare.WaitingTick.Minute() != 20 {
			t.Errorf("%+v", rare)
		}
		time.Sleep(20 * time.Second)
		rare, _ := h.Status().Timer("rare")
		if !rare.WaitingTick.IsZero() || rare.Skipped[timer.ReasonHostFull] != 1 || len(rare.Running) != 1 {
			t.Errorf("%+v", rare)
		}
		x, err := h.Explain(t.Context(), "rare", rare.Running[0].Tick.Add(10*time.Minute))
		if err != nil || x.Reason != timer.ReasonHostFull {
			t.Errorf("%+v, %v", x, err)
		}
		f.ended()
	})
}

// A pause, a blackout, the removal of the timer, and the drain of the host each end the wait of a
// tick, and the tick is counted.
//
// Fails when handleOne does not check for pauses, when planner.recheck does not check for
// blackouts, or when Remove or Scheduler.drain loses the tick.
func TestFullWaitEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		job    timer.Timer
		end    func(t *testing.T, h *host)
		reason timer.Reason
	}{
		{"pause", timer.Timer{}, func(t *testing.T, h *host) {
			if err := h.Control().Pause(t.Context(), "job", time.Now().Add(time.Hour), ann); err != nil {
				t.Fatal(err)
			}
		}, timer.ReasonPaused},
		{"blackout", timer.Timer{Blackouts: []schedule.Blackout{schedule.DailyWindow("00:12", "00:19", "UTC")}},
			func(*testing.T, *host) { time.Sleep(2 * time.Minute) }, timer.ReasonBlackout},
		{"removed", timer.Timer{}, func(t *testing.T, h *host) {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			_ = h.Remove(ctx, "job") // returns an error if a run is in progress
		}, timer.ReasonDraining},
		{"draining", timer.Timer{}, func(t *testing.T, h *host) { h.Stopped(t) }, timer.ReasonDraining},
	} {
		for _, local := range []bool{false, true} { // true if the run for which it waits is on this host
			t.Run(fmt.Sprint(c.name, local), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					job := c.job
					job.Name, job.Schedule, job.OnFull = "job", tenMinutes, timer.FullWait
					job.Run = f.handler(15 * time.Minute)
					if local && c.reason == timer.ReasonBlackout { // its tick waits from 00:20
						job.Blackouts = []schedule.Blackout{schedule.DailyWindow("00:22", "00:29", "UTC")}
					}
					h := f.start(timer.Config{}, job)
					other := f.start(timer.Config{}, timer.Timer{Name: "job", Run: f.handler(15 * time.Minute)})
					if !local {
						time.Sleep(9 * time.Minute)
						trigger(t, other, "job")
					}
					time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 10, 1, 0, time.UTC)))
					if local {
						time.Sleep(10 * time.Minute)
					}
					if st, _ := h.Status().Timer("job"); st.WaitingTick.IsZero() {
						t.Fatalf("%+v", st)
					}
					c.end(t, h)
					time.Sleep(15 * time.Second)
					if st, ok := h.Status().Timer("job"); ok &&
						(!st.WaitingTick.IsZero() || st.Skipped[c.reason] != 1) {
						t.Errorf("%+v", st)
					}
					f.Stop()
				})
			})
		}
	}
}

// A tick that waits costs each host at most one call per TTL/6, and none while the run for which it
// waits is in progress on that host. A slot that becomes free through a larger MaxConcurrency, or
// in a shared limit, is found equally soon.
//
// Fails when the pauses do not grow, or when host_full causes a call to the store.
func TestFullWaitCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var stores [3]*countingLock
		job := timer.Timer{Name: "job", Schedule: schedule.Every(time.Hour).Offset(0), OnFull: timer.FullWait,
			MaxRunTime: 3 * time.Hour, Run: f.handler(2 * time.Hour)}
		for i := range stores {
			stores[i] = &countingLock{DistributedLock: f.store, name: "timer:job"}
			f.startOn(stores[i], timer.Config{}, job)
		}
		time.Sleep(90 * time.Minute) // it has run since 01:00; for all others the tick was taken
		for _, s := range stores {
			s.calls.Store(0)
		}
		time.Sleep(75 * time.Minute) // it is now 02:45; the tick of 02:00 waits until 03:00
		holders := 0
		for i, s := range stores {
			n := s.calls.Load()
			if st, _ := f.Hosts[i].Status().Timer("job"); len(st.Running) == 1 {
				if holders++; n != 0 {
					t.Errorf("the host that runs it made %d calls", n)
				}
			} else if n < 45*60/5 || n > 2*45*60/5+10 {
				t.Errorf("%d calls in 45 minutes", n)
			}
		}
		if holders != 1 {
			t.Errorf("%d hosts run it", holders)
		}
		f.ended()
	})
}

// A tick that finds a shared limit full waits for it, and the limit holds, with and without a
// store.
//
// Fails when a limit that is full does not make a tick wait.
func TestFullWaitForALimit(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("local ", local), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				watch := &limitWatch{}
				config := smtp(2)
				config.Logger = slog.New(slog.DiscardHandler)
				if !local {
					config.Store = memlock.New()
				}
				h, err := timer.New(config, mailers(20, timer.Timer{Schedule: tenMinutes, OnFull: timer.FullWait,
					Run: watch.handler(fixed(10 * time.Second))})...)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- h.Run(ctx) }()
				time.Sleep(time.Until(time.Now().Truncate(10 * time.Minute).Add(10*time.Minute + 101*time.Second)))
				valid, most, begun := watch.seen()
				if most != 2 || begun != 20 || !local && valid != 2 {
					t.Errorf("%d of 20 ran, %d at once", begun, most)
				}
				for _, st := range h.Status().Timers {
					if st.Started != 1 || len(st.Skipped) != 0 {
						t.Errorf("%+v", st)
					}
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// When a run ends, a tick of another timer that waits for a shared limit starts immediately. If
// several ticks wait, the one that has waited longest starts.
//
// Fails when longestFor considers only the timer's own tick, or returns any tick.
func TestFullWaitForALimitOfAnotherTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var mu sync.Mutex
		var order []string
		list := mailers(5, timer.Timer{OnFull: timer.FullWait, Run: func(ctx context.Context) error {
			r, _ := timer.RunFromContext(ctx)
			mu.Lock()
			order = append(order, fmt.Sprint(r.Timer(), " at ", time.Now().Format("4:05")))
			mu.Unlock()
			return sleep(ctx, 61*time.Second)
		}})
		var want []string
		for i := range list {
			list[i].Schedule = schedule.At(time.Now().Add(time.Duration(len(list)-i) * 10 * time.Second))
			want = append([]string{fmt.Sprintf("mail-%d at %s", i,
				time.Now().Add(10*time.Second+time.Duration(len(list)-1-i)*61*time.Second).Format("4:05"))}, want...)
		}
		f.start(smtp(1), list...)
		time.Sleep(6 * time.Minute)
		f.ended()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
	})
}

// A tick that waits and then runs counts once towards AlarmAfter, however many times it was
// refused.
//
// Fails when deadman.uncount subtracts more than the latest tick.
func TestFullWaitCountsTicksOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var runs atomic.Int64
		job := timer.Timer{Name: "job", Schedule: schedule.Every(time.Minute).Offset(0), OnFull: timer.FullWait,
			Run: func(ctx context.Context) error {
				_ = sleep(ctx, 61*time.Second)
				if runs.Add(1) > 2 {
					return errors.New("no luck")
				}
				return nil
			}}
		f.start(timer.Config{}, job)
		f.start(timer.Config{}, job)
		time.Sleep(13*time.Minute + 30*time.Second)
		failed := int(runs.Load()) - 2
		for _, h := range f.Hosts {
			st := h.Status().Timers[0]
			if n := st.TicksSinceSuccess; n < failed || n > failed+1 || h.TimersSucceed() == nil {
				t.Errorf("after %d failures: %+v", failed, st)
			}
		}
		f.ended()
	})
}

// Under all kinds of faults, each tick is counted, no tick runs twice while the store answers, and
// no goroutine is left. The test uses runs of any length, timers that are added and removed,
// Triggers, MaxRuns, shared limits, and a slow store.
//
// Fails when waiting.mayWait accepts a tick that was overtaken.
func TestFullWaitUnderChaos(t *testing.T) {
	for seed := range uint64(testkit.Rounds(t, 3, 20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 16))
				f := newFleet(t)
				takes := func(ctx context.Context) error {
					r, _ := timer.RunFromContext(ctx)
					defer f.watch.enter(ctx)()
					return sleep(ctx, time.Duration(1+r.Tick().Unix()*7919%3700)*time.Millisecond)
				}
				var list []timer.Timer
				for i := range 6 {
					list = append(list, timer.Timer{Name: fmt.Sprint("t", i), Schedule: schedule.Every(time.Second),
						OnFull: timer.FullWait, MaxConcurrency: 1 + i%3, MaxPerTick: 1 + i%2, MaxPerHost: 1,
						OnStoreDown: timer.StoreDownSkip, RunOnStart: timer.RunOnStartPolicy(i % 3),
						LeastRecentFirst: i%2 == 0, Run: takes})
					if i >= 4 {
						list[i].Limits = []string{"smtp"}
					}
				}
				config := timer.Config{Limits: smtp(1).Limits, MaxRuns: 3 + int(seed%3), MaxWait: 5 * time.Second}
				for range 3 {
					f.start(config, list...)
				}
				for range 200 {
					h := f.Hosts[random.IntN(len(f.Hosts))]
					name := fmt.Sprint("t", random.IntN(6))
					switch random.IntN(7) {
					case 0:
						ctx, stop := context.WithTimeout(t.Context(), time.Second)
						go func() { defer stop(); _ = h.Trigger(ctx, name) }()
					case 1:
						h.Link.Inject(dlocktest.Slow(time.Duration(random.IntN(700)) * time.Millisecond))
					case 2:
						h.Link.Heal()
					case 3:
						ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
						_ = h.Remove(ctx, name)
						stop()
						_ = h.Register(list[int(name[1]-'0')])
					}
					time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				}
				for _, h := range f.Hosts {
					h.Link.Heal()
				}
				synctest.Wait()
				f.Stop()
				for _, h := range f.Hosts {
					h.Accounted(t)
				}
				for i := range 6 {
					name := fmt.Sprint("t", i)
					f.watch.forgetTriggers(name)
					_, most := f.watch.ticks(name)
					if policy := timer.RunOnStartPolicy(i % 3); most > 1+i%2 && policy != timer.RunOnStartEachHost {
						t.Errorf("%s: a tick ran %d times", name, most)
					}
				}
				f.watch.check(t)
			})
		})
	}
}

// While the store is down, OnStoreDown applies to a waiting tick when the tick is tried again.
//
// Fails when a tick that is tried again does not check the storeWatch, or when a wait ends with the
// outage.
func TestFullWaitWhileTheStoreIsDown(t *testing.T) {
	for _, policy := range []timer.StoreDownPolicy{timer.StoreDownRunLocal, timer.StoreDownSkip} {
		t.Run(policy.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", OnFull: timer.FullWait, OnStoreDown: policy,
					Run: f.handler(15 * time.Minute)}
				other := f.start(timer.Config{}, job)
				job.Schedule = tenMinutes
				h := f.start(timer.Config{}, job)
				time.Sleep(9 * time.Minute)
				trigger(t, other, "job")
				time.Sleep(2 * time.Minute) // the tick of 00:10 waits
				h.Link.Inject(down)
				time.Sleep(10 * time.Second)
				st, _ := h.Status().Timer("job")
				runs := policy == timer.StoreDownRunLocal
				if !st.WaitingTick.IsZero() || (len(st.Running) == 1) != runs ||
					(st.Skipped[timer.ReasonStoreDown] == 1) == runs {
					t.Errorf("%+v", st)
				}
				h.Link.Heal()
				f.ended()
			})
		})
	}
}

// With RunOnStartEachHost and FullWait, hosts that start together run one after the other.
//
// Fails when waiting.mayWait treats the tick of a start as overtaken.
func TestFullWaitOneHostAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 5 {
			f.start(timer.Config{}, timer.Timer{Name: "warm up", RunOnStart: timer.RunOnStartEachHost,
				OnFull: timer.FullWait, Run: f.handler(10 * time.Second)})
		}
		time.Sleep(5 * 15 * time.Second)
		if n, _ := f.runs("warm up"); n != 5 || f.watch.peakOf("warm up") != 1 {
			t.Errorf("%d runs, %d at once", n, f.watch.peakOf("warm up"))
		}
		if skipped := f.ended(); len(skipped) != 0 {
			t.Errorf("skipped %v", skipped)
		}
	})
}

// When a run ends, the tick of its own timer is tried immediately, even if another tick has waited
// longer for a shared limit and may not start for another reason.
//
// Fails when runEnded tries only the tick that has waited longest.
func TestFullWaitBehindAnotherTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		config := timer.Config{Limits: []timer.Limit{{Name: "smtp", Size: 1}, {Name: "sms", Size: 1}}}
		in := func(d ...time.Duration) (instants []time.Time) {
			for _, d := range d {
				instants = append(instants, time.Now().Add(d))
			}
			return instants
		}
		f.start(config, timer.Timer{Name: "sms", Limits: []string{"sms"}, Schedule: schedule.At(in(time.Second)...),
			Run: f.handler(time.Hour)})
		f.start(config, timer.Timer{Name: "both", Limits: []string{"smtp", "sms"}, OnFull: timer.FullWait,
			Schedule: schedule.At(in(10 * time.Second)...), Run: f.handler(0)},
			timer.Timer{Name: "own", Limits: []string{"smtp"}, OnFull: timer.FullWait,
				Schedule: schedule.At(in(5*time.Second, 20*time.Second)...), Run: f.handler(100 * time.Second)})
		time.Sleep(105*time.Second + time.Millisecond)
		if n, _ := f.runs("own"); n != 2 {
			t.Errorf("%d runs just after the first has ended, want 2", n)
		}
		f.ended()
	})
}
