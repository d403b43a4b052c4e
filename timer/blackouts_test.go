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

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// In a blackout of the timer or of the scheduler, ticks are skipped and counted once, before any
// other check and without a call to the store. Trigger ignores blackouts. The dead-man's check
// raises no alarm.
//
// Fails when schedules.blackout checks only one of the lists, when schedules.due checks the
// blackout last, or when blackedOut counts the tick towards AlarmAfter.
func TestBlackoutSkipsTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		window := func(from, to string) []schedule.Blackout {
			return []schedule.Blackout{schedule.DailyWindow(from, to, "UTC")}
		}
		busy := timer.Timer{Name: "busy", Schedule: minutely(), Blackouts: window("00:10", "00:20"),
			Run: f.handler(14*time.Minute + 30*time.Second)}
		own := timer.Timer{Name: "own", Schedule: minutely(), Blackouts: window("00:10", "00:20"),
			Run: f.handler(time.Second)}
		other := timer.Timer{Name: "other", Schedule: minutely(), Run: f.handler(time.Second)}
		paused := own
		paused.Name = "paused"
		free := own // never calls the store, so this host enforces its pause
		free.Name, free.MaxConcurrency, free.MaxPerTick = "free", timer.NoLimit, timer.NoLimit
		h := f.start(timer.Config{Blackouts: window("00:30", "00:35")}, busy, own, other, paused, free)
		time.Sleep(9*time.Minute + 30*time.Second)
		for _, name := range []string{"paused", "free"} {
			if err := h.Control().Pause(t.Context(), name, time.Now().Add(time.Hour), ann); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(beat)
		asked := h.Link.Calls(dlocktest.OpAcquire)
		time.Sleep(10 * time.Minute) // it is now 00:19:36
		for name, want := range map[string]uint64{"busy": 10, "own": 10, "other": 0, "paused": 10, "free": 10} {
			st, _ := h.Status().Timer(name)
			if st.Skipped[timer.ReasonBlackout] != want || st.Skipped[timer.ReasonPaused]+want > 10 {
				t.Errorf("%s: %+v", name, st)
			}
		}
		if n := h.Link.Calls(dlocktest.OpAcquire) - asked; n > 10+60 { // the calls of other and of the prober
			t.Errorf("the store was called %d times", n)
		}
		if err := h.TimersSucceed(); err != nil {
			t.Errorf("a blackout must not raise an alarm: %v", err)
		}
		if err := h.Trigger(t.Context(), "own"); err != nil {
			t.Errorf("a trigger in a blackout: %v", err)
		}
		time.Sleep(20 * time.Minute) // it is now 00:39:36
		ran, _ := f.watch.ticks("own")
		if ran != 9+10+5+1 { // minutes 1 to 9, 20 to 29 and 35 to 39; the triggered run has no tick
			t.Errorf("%d of its ticks ran", ran)
		}
		if ran, _ := f.watch.ticks("other"); ran != 29+5 {
			t.Errorf("%d ticks of the other timer ran", ran)
		}
		f.ended()
	})
}

// A tick that is due in a blackout is skipped, even if its host tries it a little later, or yields.
//
// Fails when schedules.due calls the blackouts for the current time, or when blackoutAgain calls
// them for ticks that have yielded.
func TestBlackoutIsJudgedByTheTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFleet(t), &sleeper{}
		at := func(minute, second int) time.Time { return time.Date(2000, 1, 1, 0, minute, second, 0, time.UTC) }
		dark := []schedule.Blackout{schedule.Between(at(15, 0), at(20, 0))}
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.At(at(14, 58), at(19, 58)),
			Blackouts: dark, Run: f.handler(0)}, s.timer())
		time.Sleep(14*time.Minute + 55*time.Second)
		s.sleep(at(15, 2))
		time.Sleep(5 * time.Minute)
		s.sleep(at(20, 2))
		time.Sleep(time.Minute)
		if st, _ := h.Status().Timer("a"); st.Started != 1 || st.Skipped[timer.ReasonBlackout] != 1 ||
			f.watch.startsOf("a", at(14, 58)) != 1 {
			t.Errorf("%+v", st)
		}
		// The hosts that ran the previous tick yield until a few milliseconds after the blackout
		// begins.
		for range 3 {
			f.start(timer.Config{}, timer.Timer{Name: "b", Schedule: minutely(), MaxConcurrency: 3, MaxPerTick: 3,
				LeastRecentFirst: true, Run: f.handler(0),
				Blackouts: []schedule.Blackout{schedule.Between(at(30, 0).Add(time.Microsecond), at(40, 0))}})
		}
		time.Sleep(time.Until(at(35, 0)))
		if n := f.watch.startsOf("b", at(30, 0)); n != 3 {
			t.Errorf("%d hosts ran the tick before the blackout, want 3", n)
		}
		f.ended()
	})
}

// While a blackout panics or returns an end that is not later, no run starts. The log reports that
// once, and Explain reports it for every tick. The dead-man's check reports it, too.
//
// Fails when schedules.blackout ignores the error, when blackedOut logs it each time, or when
// blackedOut treats a failed blackout as one that contains the tick.
func TestBrokenBlackout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var log testkit.Log
		var broken atomic.Bool
		panics := schedule.BlackoutFunc(func(time.Time) bool {
			if broken.Load() {
				panic("no calendar")
			}
			return false
		})
		h := f.start(timer.Config{Logger: textLogger(&log)}, timer.Timer{Name: "a",
			Schedule: schedule.Every(time.Second), Blackouts: []schedule.Blackout{panics}, Run: f.handler(0)})
		for range 2 {
			time.Sleep(time.Minute)
			broken.Store(true)
			ran, _ := f.watch.ticks("a")
			time.Sleep(time.Minute)
			if after, _ := f.watch.ticks("a"); after != ran {
				t.Errorf("%d runs started", after-ran)
			}
			x, err := h.Explain(t.Context(), "a", time.Time{})
			if err != nil || x.Reason != timer.ReasonBlackout || !strings.Contains(x.Text, "no calendar") {
				t.Errorf("%v, %v", x, err)
			}
			if err := h.TimersSucceed(); err == nil || !strings.Contains(err.Error(), "blackout") {
				t.Errorf("the dead-man's check: %v", err)
			}
			broken.Store(false)
		}
		time.Sleep(time.Minute)
		if err := h.TimersSucceed(); err != nil {
			t.Error(err)
		}
		f.ended()
		if n := strings.Count(log.String(), "no calendar"); n != 2 {
			t.Errorf("logged %d times that it is broken, want 2:\n%s", n, log.String())
		}
	})
}

// A slow blackout does not delay other timers. Timers without user code start first. Ticks that are
// dispatched too late because of the blackout count as missed.
//
// Fails when takeDue puts timers with user code into the same batch as others.
func TestSlowBlackoutDelaysNoOtherTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		due := time.Now().Add(time.Minute)
		var late atomic.Int64
		var timers []timer.Timer
		for i := range 40 {
			name := fmt.Sprintf("%02d", i)
			job := timer.Timer{Name: name, Schedule: schedule.Every(time.Hour).From(due),
				Run: func(context.Context) error {
					if name != "20" && time.Since(due) > time.Second {
						late.Add(1)
					}
					return nil
				}}
			if name == "20" {
				job.Blackouts = []schedule.Blackout{schedule.BlackoutFunc(func(time.Time) bool {
					time.Sleep(20 * time.Second)
					return false
				})}
			}
			timers = append(timers, job)
		}
		h := f.start(timer.Config{}, timers...)
		time.Sleep(2 * time.Minute)
		if n := late.Load(); n > 0 {
			t.Errorf("%d timers started late", n)
		}
		ran := 0
		for _, ts := range h.Status().Timers {
			ran += int(ts.Started)
		}
		if ran < 2 {
			t.Errorf("%d timers ran: the test proves nothing", ran)
		}
	})
}

// A tick that waits for a run to end is tried repeatedly. If its blackout is slow, other timers are
// still due on time.
//
// Fails when the scheduling goroutine calls the blackouts of waiting ticks.
func TestSlowBlackoutOfATickThatWaitsDelaysNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		x := timer.Timer{Name: "x", Schedule: schedule.Every(time.Second),
			Run: func(context.Context) error { ran.Add(1); return nil }}
		waits := timer.Timer{Name: "w", Schedule: schedule.Every(time.Hour), MaxConcurrency: 1,
			MaxRunTime: 10 * time.Hour, OnFull: timer.FullWait,
			Blackouts: []schedule.Blackout{schedule.BlackoutFunc(func(time.Time) bool {
				time.Sleep(12 * time.Second)
				return false
			})},
			Run: func(context.Context) error { <-ctx.Done(); return nil }}
		s, err := timer.New(timer.Config{Logger: slog.New(slog.DiscardHandler)}, x, waits)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		if _, err := s.Trigger(ctx, "w", timer.TriggerOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Minute) // a tick of w is due and waits
		before := ran.Load()
		time.Sleep(10 * time.Minute)
		if n := ran.Load() - before; n < 500 {
			t.Errorf("in 10 minutes x ran %d times; Live: %v", n, s.Live())
		}
		cancel()
		<-done
	})
}
