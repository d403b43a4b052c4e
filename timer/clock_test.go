package timer_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A run that reaches its MaxRunTime is logged at that moment, and again at 1.5 × MaxRunTime. That
// holds with and without a slot in the store, alone and among many runs, and while the host drains.
//
// Fails when runner.begin starts no timer, or when the timer counts from the moment when it is
// created.
func TestMaxRunTimeIsLoggedInTime(t *testing.T) {
	for name, c := range map[string]struct {
		tm    timer.Timer
		drain time.Duration // when the host drains; 0: never
	}{
		"on its host":           {timer.Timer{LocalOnly: true, MaxRunTime: time.Minute}, 0},
		"on its host, long":     {timer.Timer{LocalOnly: true}, 0},
		"on its host, short":    {timer.Timer{LocalOnly: true, MaxRunTime: 12 * time.Second}, 0},
		"on its host, just":     {timer.Timer{LocalOnly: true, MaxRunTime: 30 * time.Second}, 0},
		"on its host, draining": {timer.Timer{LocalOnly: true, MaxRunTime: time.Minute}, time.Second},
		"with a slot":           {timer.Timer{MaxRunTime: time.Minute}, 0},
		"with a slot, draining": {timer.Timer{MaxRunTime: time.Minute}, time.Second},
	} {
		for _, among := range []int{0, 5} {
			t.Run(fmt.Sprintf("%s, among %d", name, 2*among), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					log := &testkit.Log{}
					end := make(chan struct{})
					tm := c.tm // a copy, because the parallel tests share c.tm
					tm.Name, tm.MaxConcurrency = "a", 1+2*among
					tm.Run = func(ctx context.Context) error {
						if run, _ := timer.RunFromContext(ctx); run.Slot() != among { // the other runs end soon
							time.Sleep(time.Duration(1+run.Slot()*7%5) * time.Millisecond)
							return nil
						}
						<-end
						return nil
					}
					h := f.start(timer.Config{Logger: slog.New(slog.NewTextHandler(log, nil)),
						DrainTimeout: 3 * time.Hour}, tm)
					time.Sleep(3 * time.Second) // the scheduling goroutine was awake when the run began
					began := time.Now()
					for range 1 + 2*among {
						if err := h.Trigger(t.Context(), "a"); err != nil {
							t.Fatal(err)
						}
					}
					if c.drain > 0 {
						time.Sleep(c.drain)
						h.Cancel()
					}
					limit := tm.MaxRunTime
					if limit == 0 {
						limit = timer.DefaultMaxRunTime
					}
					for _, told := range []struct {
						line string
						at   time.Duration
					}{{"reached its MaxRunTime", limit}, {"past 1.5 × MaxRunTime", limit + limit/2}} {
						for want, at := range []time.Duration{told.at - time.Millisecond, told.at + time.Millisecond} {
							time.Sleep(time.Until(began.Add(at)))
							synctest.Wait()
							if n := strings.Count(log.String(), told.line); n != want {
								t.Errorf("%v after it began, %q was told %d times, want %d:\n%s", at, told.line, n,
									want, log.String())
							}
						}
					}
					close(end)
					f.Stop()
				})
			})
		}
	}
}

// A run without a slot in the store is logged at its MaxRunTime even while slow user code handles
// many timers that are due at the same time. Each call takes less time than Live allows.
//
// Fails when only takeDue starts the timer, or when runDue uses one time for a whole batch.
func TestMaxRunTimeIsLoggedWhileBlackoutsAreSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		log := &testkit.Log{}
		end := make(chan struct{})
		var slow atomic.Bool
		blackout := schedule.BlackoutFunc(func(time.Time) bool {
			if slow.Load() {
				time.Sleep(9 * time.Second)
			}
			return false
		})
		timers := []timer.Timer{{Name: "a", LocalOnly: true, MaxRunTime: 30 * time.Second,
			Run: func(context.Context) error { <-end; return nil }}}
		for i := range 6 {
			timers = append(timers, timer.Timer{Name: fmt.Sprint("slow-", i), LocalOnly: true,
				Schedule:  schedule.Every(time.Hour).Offset(time.Minute),
				Blackouts: []schedule.Blackout{blackout}, Run: func(context.Context) error { return nil }})
		}
		h := f.start(timer.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, timers...)
		time.Sleep(59 * time.Second)
		began := time.Now()
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		slow.Store(true)
		for want, at := range []time.Duration{30*time.Second - time.Millisecond, 30*time.Second + time.Millisecond} {
			time.Sleep(time.Until(began.Add(at)))
			synctest.Wait()
			if err := h.Live(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "reached its MaxRunTime"); n != want {
				t.Errorf("%v after it began, it was told %d times, want %d:\n%s", at, n, want, log.String())
			}
		}
		slow.Store(false)
		time.Sleep(time.Minute)
		var missed uint64
		for _, status := range h.Status().Timers {
			missed += status.Skipped[timer.ReasonMissed]
		}
		if missed != 4 { // the ticks that were tried 0 s and 9 s late were not missed
			t.Errorf("%d ticks were missed, want 4", missed)
		}
		close(end)
		f.Stop()
	})
}
