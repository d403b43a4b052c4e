package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Status, metrics and health show a removed timer until its last run has ended. Its name is
// immediately free for another timer, whose limits count the remaining runs, on this host and in
// the fleet.
//
// Fails when Status, Collect or TimersSucceed omits removed timers, when Register refuses the name,
// or when the new timer does not count the runs of the old one.
func TestRemovedTimersShowUntilTheirRunsEnd(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("local ", local), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				reg := newRegistry()
				release := make(chan struct{})
				stuck := timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 2, MaxPerTick: 2,
					MaxPerHost: 1, MaxRunTime: 10 * time.Second, LocalOnly: local,
					Run: func(ctx context.Context) error { defer f.watch.enter(ctx)(); <-release; return nil }}
				h := f.start(timer.Config{Registerer: reg}, stuck)
				testkit.Eventually(t, 2*time.Second, "it runs",
					func() bool { return len(h.Status().Timers[0].Running) == 1 })
				slots := 1.0
				if local {
					slots = 0
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := h.Remove(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Remove returned %v", err)
				}
				st, ok := h.Status().Timer("a")
				if !ok || !st.Removed || len(st.Running) != 1 || !st.Next.IsZero() {
					t.Errorf("removed: %+v", st)
				}
				if v := values(t, reg); v["tickslot_slots_held a"] != slots || v["tickslot_runs_overdue a"] != 0 {
					t.Errorf("held %v", v["tickslot_slots_held a"])
				}
				if err := h.TimersSucceed(); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
				if v := values(t, reg); v["tickslot_runs_overdue a"] != 1 {
					t.Error("runs_overdue does not show the run that is left")
				}
				want := `timer "a" was removed, but 1 of its runs are past MaxRunTime and ignore their context`
				if err := h.TimersSucceed(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("TimersSucceed: %v", err)
				}
				if err := h.Degraded(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Degraded: %v", err)
				}

				next := stuck
				next.Run = f.handler(0)
				if err := h.Register(next); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				st, _ = h.Status().Timer("a")
				if len(h.Status().Timers) != 1 || st.Removed || len(st.Running) != 1 ||
					st.Skipped[timer.ReasonHostFull] < 9 || st.Next.IsZero() {
					t.Errorf("its successor: %+v", st)
				}
				if v := values(t, reg); v["tickslot_runs_overdue a"] != 1 {
					t.Error("runs_overdue does not show the run that is left")
				}
				// If a timer without runs of its own is removed, Remove does not wait, and Status
				// shows the timer for as long as the name has runs.
				if err := h.Remove(t.Context(), "a"); err != nil {
					t.Error(err)
				}
				if st, ok := h.Status().Timer("a"); !ok || !st.Removed || len(st.Running) != 1 {
					t.Errorf("removed twice: %+v", st)
				}
				next.MaxPerHost = 2
				if err := h.Register(next); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if st, _ := h.Status().Timer("a"); st.Started < 9 || len(st.Running) != 1 {
					t.Errorf("with room for two: %+v", st)
				}
				close(release)
				synctest.Wait()
				if st, _ := h.Status().Timer("a"); len(st.Running) != 0 || h.TimersSucceed() != nil {
					t.Errorf("when it has ended: %+v, %v", st, h.TimersSucceed())
				}
				h.Accounted(t)
				if err := h.Remove(t.Context(), "a"); err != nil || len(h.Status().Timers) != 0 {
					t.Errorf("%v, %+v", err, h.Status().Timers)
				}
				for series := range values(t, reg) {
					if strings.HasSuffix(series, " a") || strings.Contains(series, " a ") {
						t.Errorf("%s is still there", series)
					}
				}
				f.Stop()
				f.watch.check(t)
				if peak := f.watch.peak["a"]; peak != 2 {
					t.Errorf("%d at once", peak)
				}
			})
		})
	}
}

// A handler may remove its own timer. Remove waits for all runs except the run that calls it.
//
// Fails when Remove waits for its caller, which takes until MaxRunTime.
func TestHandlerRemovesItsOwnTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		other := make(chan time.Duration, 1)
		took := make(chan time.Duration, 1)
		h := f.start(timer.Config{})
		err := h.Register(
			timer.Timer{Name: "once", Schedule: schedule.Every(time.Second), Run: func(ctx context.Context) error {
				began := time.Now()
				err := h.Remove(context.WithValue(ctx, f, "derived"), "once")
				took <- time.Since(began)
				return err
			}},
			timer.Timer{Name: "two", Schedule: schedule.Every(time.Second).Offset(0), MaxConcurrency: 2, MaxPerTick: 2,
				Run: func(ctx context.Context) error {
					began := time.Now()
					if r, _ := timer.RunFromContext(ctx); r.Slot() == 0 {
						return sleep(ctx, 10*time.Second)
					}
					err := h.Remove(ctx, "two")
					other <- time.Since(began)
					return err
				}})
		if err != nil {
			t.Fatal(err)
		}
		if d := <-took; d != 0 {
			t.Errorf("it took %v to remove the timer of one run", d)
		}
		if d := <-other; d != 9*time.Second {
			t.Errorf("it took %v, want the duration of the other run", d)
		}
		synctest.Wait()
		if st := h.Status().Timers; len(st) != 0 {
			t.Errorf("still there: %+v", st)
		}
		f.Stop()
	})
}

// Timers are registered, removed and triggered at random, also by handlers. Limits hold, every tick
// is counted, and nothing is left.
func TestTimersComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := newRegistry()
		h := f.start(timer.Config{Registerer: reg, DrainTimeout: time.Second})
		f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 2,
			MaxPerTick: 2,
			Run:        f.handler(1500 * time.Millisecond)})
		var over atomic.Bool
		work := func(ctx context.Context) error {
			defer f.watch.enter(ctx)()
			if rand.IntN(4) == 0 && !over.Load() {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				r, _ := timer.RunFromContext(ctx)
				_ = h.Remove(ctx, r.Timer())
			}
			time.Sleep(rand.N(4 * time.Second)) // ignores its context
			return nil
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 200 {
					name := string(rune('a' + rand.IntN(3)))
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Second))
					switch rand.IntN(4) {
					case 0:
						_ = h.Register(timer.Timer{Name: name, Schedule: schedule.Every(time.Second), MaxConcurrency: 2,
							MaxPerTick: 2, LocalOnly: name == "c", MaxRunTime: 2 * time.Second, Run: work})
					case 1:
						_ = h.Remove(ctx, name)
					case 2:
						_ = h.Trigger(ctx, name)
					case 3:
						values(t, reg)
						seen := map[string]bool{}
						for _, st := range h.Status().Timers {
							if seen[st.Name] || len(st.Running) > 2 {
								t.Errorf("twice, or too many runs: %+v", st)
							}
							seen[st.Name] = true
						}
					}
					cancel()
					time.Sleep(rand.N(500 * time.Millisecond))
				}
			})
		}
		all.Wait()
		over.Store(true)
		time.Sleep(10 * time.Second)
		for _, st := range h.Status().Timers {
			if st.Removed {
				t.Errorf("it has ended: %+v", st)
			}
		}
		f.Stop()
		h.Accounted(t)
		for name, peak := range f.watch.peak {
			if name == "c" && peak > 2 || peak > 2+2 { // a run past its MaxRunTime holds no slot
				t.Errorf("%s: %d at once", name, peak)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if held, _ := f.store.List(t.Context(), "timer:"+name, 2); len(held) != 0 {
				t.Errorf("left in the store: %+v", held)
			}
		}
	})
}

// A nil context is an error, and the call has no other effect.
func TestNilContexts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Run: f.handler(0)})
		var none context.Context
		other, err := timer.New(timer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"Run": other.Run(none), "Trigger": h.Trigger(none, "a"),
			"Remove": h.Remove(none, "a")} {
			if err == nil || !strings.Contains(err.Error(), "context is nil") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}
