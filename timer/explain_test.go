package timer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func named(host string) timer.Config {
	return timer.Config{Holder: dlock.Holder{Host: host, PID: 1, ID: "x"}, DrainTimeout: time.Second}
}

func minute(n int) time.Time { return time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC) }

// Explain has a sentence for every reason, with what an operator needs: who holds the slot, since
// or until when, who paused the timer, which limit.
//
// Fails when a case of Explanation.why or Explanation.words is removed, or when skipMany does not
// record the time.
func TestExplainTellsEveryReason(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	dark := []schedule.Blackout{schedule.DailyWindow("00:02", "00:20", "UTC")}
	for name, c := range map[string]struct {
		job    timer.Timer
		when   func(t *testing.T, f *virtualFleet, h *host) // called between the first and the second tick
		reason timer.Reason
		says   string
	}{
		"ran": {says: "a at 2000-01-01T00:02:00Z: ran here, on me/1/x, in slot 0, from 2000-01-01T00:02:00Z for " +
			"1s: ok"},
		"runs": {job: timer.Timer{MaxConcurrency: 2, MaxPerTick: 2, Run: hang},
			says: "runs here, on me/1/x, in slot 1"},
		"failed": {job: timer.Timer{Run: func(context.Context) error { return errors.New("no paper") }},
			says: "for 0s: error: no paper"},
		"retried": {job: timer.Timer{Retry: timer.Retry{MaxAttempts: 3},
			Run: func(context.Context) error { return errors.New("no paper") }},
			says: "error after 3 attempts: no paper"},
		"no ticks":  {job: timer.Timer{MaxPerTick: timer.NoLimit}, says: "ran here"},
		"local run": {job: timer.Timer{LocalOnly: true}, says: "ran here, on me/1/x, in slot 0"},
		"degraded": {job: timer.Timer{}, when: func(_ *testing.T, f *virtualFleet,
			h *host) {
			h.Link.Inject(dlocktest.Error(errors.New("down")))
		},
			says: "ran here, on me/1/x, without a slot of the store's"},
		"full": {when: func(t *testing.T, f *virtualFleet, h *host) {
			time.Sleep(3 * time.Second)
			s := otherSession(t, f.store)
			if _, err := s.Semaphore("timer:a", 1).TryAcquire(t.Context()); err != nil {
				t.Error(err)
			}
		}, reason: timer.ReasonFull,
			says: "timer:a: not acquired: held by other/1/x for 27s, ends in 13s unless extended: since " +
				"2000-01-01T00:01:33Z"},
		"taken": {when: func(_ *testing.T, f *virtualFleet, h *host) {
			timer.SetSkew(f.start(named("b"), timer.Timer{Name: "a", Schedule: minutely(), Run: nop}).Scheduler,
				time.Second)
		}, reason: timer.ReasonTickTaken,
			says: "the tick has had all its starts, the last by b/1/x; it was claimed last by b/1/x"},
		"late": {job: timer.Timer{Schedule: schedule.Every(30 * time.Second).Offset(0)},
			when: func(_ *testing.T, f *virtualFleet, h *host) {
				b := f.start(named("b"), timer.Timer{Name: "a",
					Schedule: schedule.Every(30 * time.Second).Offset(2 * time.Second), Run: nop})
				timer.SetSkew(b.Scheduler, 3*time.Second)
			}, reason: timer.ReasonTickLate,
			says: "a later tick has been claimed already; the latest tick that was claimed is " +
				"2000-01-01T00:02:02Z, by b/1/x"},
		"ahead": {when: func(_ *testing.T, f *virtualFleet, h *host) {
			timer.SetSkew(h.Scheduler, 7*time.Second)
		}, reason: timer.ReasonTickAhead,
			says: "more than 5s ahead of the store's clock: check the clock of this host; no host claimed it: the " +
				"latest that was claimed is 2000-01-01T00:01:00Z, by me/1/x"},
		"paused": {when: func(t *testing.T, f *virtualFleet, h *host) {
			if err := h.Control().Pause(t.Context(), "a", minute(12), ann); err != nil {
				t.Error(err)
			}
		}, reason: timer.ReasonPaused,
			says: "paused by ann: the database is being moved (for another 10m0s): until 2000-01-01T00:12:00Z"},
		"limit of 0": {when: func(t *testing.T, f *virtualFleet, h *host) {
			if err := h.Control().SetMaxConcurrency(t.Context(), "a", 0, ann); err != nil {
				t.Error(err)
			}
		}, reason: timer.ReasonPaused, says: "paused by ann: the database is being moved; "},
		"paused here": {job: timer.Timer{MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit},
			when: func(t *testing.T, f *virtualFleet, h *host) {
				if err := h.Control().Pause(t.Context(), "a", minute(12), ann); err != nil {
					t.Error(err)
				}
			}, reason: timer.ReasonPaused,
			says: "paused by ann: the database is being moved (for another 10m0s): until 2000-01-01T00:12:00"},
		"blackout": {job: timer.Timer{Blackouts: dark}, reason: timer.ReasonBlackout,
			says: "daily 00:02 to 00:20 in UTC, until 2000-01-01T00:20:00Z at the earliest"},
		"limit local": {job: timer.Timer{MaxConcurrency: 3, MaxPerTick: 3, MaxPerHost: 1, Run: hang},
			reason: timer.ReasonHostFull,
			says:   "MaxPerHost (1) runs were active"},
		"store": {job: timer.Timer{OnStoreDown: timer.StoreDownSkip}, when: func(_ *testing.T, f *virtualFleet,
			h *host) {
			h.Link.Inject(dlocktest.Error(errors.New("down")))
		},
			reason: timer.ReasonStoreDown, says: "did not run here, on me/1/x: store: the store did not answer: down"},
		"rejoining": {job: timer.Timer{MaxConcurrency: 3,
			MaxPerTick: 3, Schedule: schedule.Every(20 * time.Second).Offset(0),
			Run: hang}, when: func(t *testing.T, f *virtualFleet, h *host) {
			// From 00:00:20 to 00:01:20 ticks get slots or find none. Then the host is cut off long
			// enough to lose its slots, and others take them.
			h.Link.Inject(dlocktest.Error(errors.New("down")))
			time.Sleep(16 * time.Second)
			s := otherSession(t, f.store)
			for range 3 {
				if _, err := s.Semaphore("timer:a", 3).TryAcquire(t.Context()); err != nil {
					t.Error(err)
				}
			}
			h.Link.Heal()
		}, reason: timer.ReasonHostFull, says: "MaxPerHost (3) runs were active"},
		"removed or drained": {job: timer.Timer{OnFull: timer.FullWait, Run: hang},
			when: func(t *testing.T, f *virtualFleet, h *host) {
				time.Sleep(30*time.Second + 100*time.Millisecond) // the second tick waits for the run of the first
				h.Stopped(t)
				f.Hosts = nil
			}, reason: timer.ReasonDraining, says: "the host was shutting down, or the timer was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := c.job
				job.Name = "a"
				if job.Schedule == nil {
					job.Schedule = minutely()
				}
				if job.Run == nil {
					job.Run = f.handler(time.Second)
				}
				h := f.start(named("me"), job)
				time.Sleep(90 * time.Second)
				if c.when != nil {
					c.when(t, f, h)
				}
				time.Sleep(time.Until(minute(2).Add(6 * time.Second)))
				tick := minute(2)
				x, err := h.Explain(t.Context(), "a", tick)
				if err != nil || !x.Known || x.Reason != c.reason || !strings.Contains(x.Text, c.says) ||
					!x.Tick.Equal(tick) || x.String() != x.Text {
					t.Errorf("%v\n%+v\nwant %s: %s", err, x, c.reason, c.says)
				}
				if x.Reason != "" && (x.Slot != -1 || x.Run != nil) {
					t.Errorf("it did not run: %+v", x)
				}
				h.Link.Heal()
				f.Stop()
			})
		})
	}
}

// Explain also says when a tick was skipped without a call to the store, or because the store had
// restarted.
func TestExplainMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFleet(t), &sleeper{}
		time.Sleep(30 * time.Second)
		run := timer.Timer{Name: "run", Schedule: minutely(), CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce,
			Window: time.Minute}, Run: f.handler(0)}
		skip := timer.Timer{Name: "skip", Schedule: minutely(), Run: f.handler(0)}
		h := f.start(named("me"), run, skip, s.timer())
		time.Sleep(2 * time.Second)
		s.sleep(minute(10).Add(30 * time.Second))
		time.Sleep(11 * time.Minute)
		for _, c := range []struct {
			name string
			tick time.Time
			says string
		}{
			{"run", minute(0),
				"tick_first: timer:run: not acquired: no tick of this schedule was claimed before, so none was missed"},
			{"run", minute(1),
				"this host came to it late, and a later one was due already, or it was older than CatchUp.Window " +
					"(1m0s)"},
			{"run", minute(9), "this host came to it late, and a later one was due already"},
			{"run", minute(9).Add(time.Second), "not a tick of its schedule"},
			{"run", minute(10), "ran here"}, // the host claimed the tick of minute 0, so the store knew the schedule
			{"skip", minute(5), "or a later one was due already, and CatchUp says to skip it"},
			{"skip", minute(10), "this host came to it late, or"},
			{"skip", minute(11), "ran here"},
			{"skip", time.Time{}, "ran here"},
			{"skip", minute(11).Add(time.Microsecond), "not a tick of its schedule"},
			{"skip", minute(12), "not due yet on me/1/x, for another 28s"},
			{"skip", minute(500), "not due yet on me/1/x, for another 8h8m28s"},
			{"skip", minute(-5),
				"me/1/x does not remember it (it keeps the last 16 since it was started); the latest tick that was " +
					"claimed is 2000-01-01T00:11:00Z, by me/1/x"},
		} {
			x, err := h.Explain(t.Context(), c.name, c.tick)
			if err != nil || !strings.Contains(x.Text, c.says) {
				t.Errorf("%s, %v: %v, %v\nwant %s", c.name, c.tick, x, err, c.says)
			}
		}
		if _, err := h.Explain(t.Context(), "nobody", minute(1)); !errors.Is(err, timer.ErrNoTimer) {
			t.Errorf("an unknown timer: %v", err)
		}
		if err := h.Register(timer.Timer{Name: "manual", Run: nop}, timer.Timer{Name: "spread", Schedule: minutely(),
			Delay: timer.Delay{ByTimer: time.Hour}, Run: nop}); err != nil {
			t.Error(err)
		}
		for _, tick := range []time.Time{{}, minute(1)} {
			if x, err := h.Explain(t.Context(), "manual", tick); err != nil || x.Known ||
				!strings.Contains(x.Text, "no tick has come due") && !strings.Contains(x.Text, "not a tick") {
				t.Errorf("%v, %v", x, err)
			}
		}
		if x, _ := h.Explain(t.Context(), "spread", minute(11)); !strings.Contains(x.Text, "not due yet on me/1/x") {
			t.Errorf("a tick that its spread delays: %v", x)
		}
		f.Stop()
	})
}

// A host keeps 16 ticks, and the store may know of earlier ones. If the store does not answer,
// Explain takes at most one StoreTimeout.
//
// Fails when history.add overwrites the same decision each time.
func TestExplainRing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(named("me"), timer.Timer{Name: "a", Schedule: minutely(), Run: f.handler(0)},
			timer.Timer{Name: "idle", Schedule: schedule.Every(24 * time.Hour).Offset(12 * time.Hour), Run: nop})
		if n := timer.Remembered(h.Scheduler, "a"); n != 0 {
			t.Errorf("%d ticks before the first", n)
		}
		for n := 1; n <= 60; n++ {
			time.Sleep(time.Minute)
			synctest.Wait()
			for back := range 20 {
				tick := minute(n - back)
				x, err := h.Explain(t.Context(), "a", tick)
				if known := back < 16 && back < n; err != nil || x.Known != known || known &&
					(x.Run == nil || !x.Run.Tick.Equal(tick)) {
					t.Fatalf("tick %d of %d: %+v, %v", n-back, n, x, err)
				}
			}
			if x, _ := h.Explain(t.Context(), "a", time.Time{}); !x.Known || !x.Tick.Equal(minute(n)) {
				t.Fatalf("the latest of %d: %v", n, x)
			}
		}
		if n := timer.Remembered(h.Scheduler, "a"); n != 16 {
			t.Errorf("%d ticks", n)
		}
		if n := timer.Remembered(h.Scheduler, "idle"); n != 0 {
			t.Errorf("an idle timer has a ring of %d ticks", n)
		}
		h.Link.Inject(dlocktest.Hang)
		asked := time.Now()
		x, err := h.Explain(t.Context(), "a", minute(60))
		if took := time.Since(asked); err != nil || !x.Known || took > time.Second || !x.LastTick.IsZero() {
			t.Errorf("%+v, %v, after %v", x, err, took)
		}
		h.Link.Heal()
		f.Stop()
	})
}

// Explain may be called while ticks are due, runs end and timers are removed.
//
// Fails, under -race, when Explain reads the history without the lock.
func TestExplainWhileTicksComeDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(named("me"), timer.Timer{Name: "a", Schedule: schedule.Every(time.Millisecond), MaxConcurrency: 3,
			MaxPerTick: 3,
			Delay:      timer.Delay{Jitter: .5}, Run: f.handler(2 * time.Millisecond)})
		var asking sync.WaitGroup
		for i := range 4 {
			asking.Go(func() {
				for range 500 {
					time.Sleep(time.Millisecond + time.Duration(i)*time.Microsecond)
					if _, err := h.Explain(t.Context(), "a", time.Now().Truncate(time.Millisecond)); err != nil {
						t.Error(err)
						return
					}
					if x, err := h.Explain(t.Context(), "a", time.Time{}); err != nil || x.Text == "" {
						t.Error(x, err)
						return
					}
				}
			})
		}
		asking.Wait()
		f.ended()
	})
}
