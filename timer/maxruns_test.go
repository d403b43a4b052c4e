package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// tenants returns n timers that are all due at the same time, at the full minute.
func tenants(n int, template timer.Timer) []timer.Timer {
	list := make([]timer.Timer, n)
	for i := range list {
		list[i] = template
		list[i].Name, list[i].CatchUp.Policy = fmt.Sprintf("tenant-%d", i), timer.CatchUpSkip
		if list[i].Schedule == nil {
			list[i].Schedule = schedule.Cron("* * * * *", "UTC")
		}
	}
	return list
}

// A thousand timers that are due at the same instant run a few at a time, and each of them runs.
// Ticks that wait are neither lost nor counted twice, with and without a store.
//
// Fails when a run that ends does not pass its place to a waiting tick.
func TestMaxRunsWait(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprintf("local %v", local), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				watch := &limitWatch{}
				h := f.start(timer.Config{MaxRuns: 20}, tenants(1000, timer.Timer{LocalOnly: local,
					Run: watch.handler(fixed(500 * time.Millisecond))})...)
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
				if n := h.Status().Waiting; n < 900 {
					t.Errorf("%d wait in line, a second after 1,000 came due", n)
				}
				time.Sleep(50 * time.Second)
				if _, most, begun := watch.seen(); begun != 1000 || most != 20 || h.Status().Waiting != 0 {
					t.Errorf("%d of 1,000 ran, %d at once, %d wait", begun, most, h.Status().Waiting)
				}
				f.Stop()
				if started, skipped := h.Accounted(t); started != 1000 || len(skipped) != 0 {
					t.Errorf("%d started, skipped %v", started, skipped)
				}
			})
		})
	}
}

// With MaxRunsSkip, a tick that finds no place is skipped with its own reason, and Trigger is
// refused.
//
// Fails when the policy is ignored.
func TestMaxRunsSkip(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{MaxRuns: 3, OnMaxRuns: timer.MaxRunsSkip}, tenants(10, timer.Timer{
			Run: f.handler(10 * time.Second)})...)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
		var refused *timer.RefusedError
		if err := h.Trigger(t.Context(), "tenant-0"); !errors.As(err, &refused) ||
			refused.Reason != timer.ReasonMaxRuns && refused.Reason != timer.ReasonHostFull {
			t.Errorf("Trigger: %v", err)
		}
		if started, skipped := h.Accounted(t); started != 3 || skipped[timer.ReasonMaxRuns] != 7 {
			t.Errorf("%d started, skipped %v", started, skipped)
		}
		for _, st := range h.Status().Timers {
			if st.Started > 0 {
				continue
			}
			x, err := h.Explain(t.Context(), st.Name, time.Time{})
			if err != nil || x.Reason != timer.ReasonMaxRuns || !strings.Contains(x.Text, "MaxRuns (3)") {
				t.Errorf("%+v, %v", x, err)
			}
		}
		f.Stop()
	})
}

// At most one tick of each timer waits, the latest, and not longer than MaxWait. While it waits,
// the tick is not claimed, so another host may run it.
//
// Fails when a later tick does not replace an earlier one, or when nothing ends a wait.
func TestMaxRunsOneTickWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		h := f.start(timer.Config{MaxRuns: 1, MaxWait: 10 * time.Second},
			timer.Timer{Name: "stuck", Run: func(context.Context) error { <-release; return nil }},
			timer.Timer{Name: "often", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "rare", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		if err := h.Trigger(t.Context(), "stuck"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		often, _ := h.Status().Timer("often")
		rare, _ := h.Status().Timer("rare")
		if n := often.Skipped[timer.ReasonMaxRuns]; n != often.Ticks-1 || often.Started != 0 {
			t.Errorf("%+v", often)
		}
		if n := rare.Skipped[timer.ReasonMaxRuns]; n != 3 && n != 2 || rare.Started != 0 {
			t.Errorf("%+v", rare)
		}
		if n := h.Status().Waiting; n < 1 || n > 2 {
			t.Errorf("%d wait", n)
		}
		other := f.start(timer.Config{}, timer.Timer{Name: "often", Schedule: schedule.Every(time.Second),
			Run: f.handler(0)})
		time.Sleep(5 * time.Second)
		close(release)
		time.Sleep(10 * time.Second)
		if st, _ := other.Status().Timer("often"); st.Started < 5 {
			t.Errorf("the other host: %+v", st)
		}
		if _, most := f.watch.ticks("often"); most > 1 {
			t.Errorf("a tick ran %d times", most)
		}
		if n := h.Status().Waiting; n != 0 {
			t.Errorf("%d wait", n)
		}
		f.Stop()
		h.Accounted(t)
	})
}

// A Trigger waits for its turn until its context ends, it has waited for MaxWait, its timer is
// removed, or the host drains.
//
// Fails when a reserved place is not freed.
func TestMaxRunsTrigger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		h := f.start(timer.Config{MaxRuns: 1, MaxWait: time.Minute},
			timer.Timer{Name: "stuck", Run: func(ctx context.Context) error {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil
			}},
			timer.Timer{Name: "a", Run: f.handler(time.Second)}, timer.Timer{Name: "gone", Run: f.handler(0)})
		if err := h.Trigger(t.Context(), "stuck"); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Trigger(soon, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that ends: %v", err)
		}
		var refused *timer.RefusedError
		if err := h.Trigger(t.Context(), "a"); !errors.As(err, &refused) || refused.Reason != timer.ReasonMaxRuns {
			t.Errorf("after MaxWait: %v", err)
		}
		got := make(chan error, 3)
		go func() { got <- h.Trigger(t.Context(), "gone") }()
		synctest.Wait()
		if err := h.Remove(t.Context(), "gone"); err != nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, timer.ErrNoTimer) {
			t.Errorf("removed: %v", err)
		}
		for range 2 {
			go func() { got <- h.Trigger(t.Context(), "a") }()
		}
		synctest.Wait()
		if n := h.Status().Waiting; n != 2 {
			t.Errorf("%d wait", n)
		}
		close(release)
		first, second := <-got, <-got // the second one is refused by MaxPerHost or waits for the first to end
		if first != nil || second != nil && !errors.As(second, &refused) {
			t.Errorf("%v, %v", first, second)
		}
		time.Sleep(10 * time.Second)
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Errorf("after all runs: %v", err)
		}
		go func() { got <- h.Trigger(context.Background(), "stuck") }()
		synctest.Wait()
		f.Stop()
		if err := <-got; err != nil && (!errors.As(err, &refused) || refused.Reason != timer.ReasonDraining) {
			t.Errorf("draining: %v", err)
		}
	})
}

// A trigger of a Control is left to a host that has room.
//
// Fails when a host claims it and then waits in line.
func TestMaxRunsControlTrigger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		full := f.start(timer.Config{MaxRuns: 1}, timer.Timer{Name: "long", Run: f.handler(time.Hour)},
			timer.Timer{Name: "a", Run: f.handler(0)})
		if err := full.Trigger(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		roomy := f.start(timer.Config{MaxRuns: 1}, timer.Timer{Name: "a", Run: f.handler(0)})
		for i := range 5 {
			if err := full.Control().Trigger(t.Context(), "a", control.TriggerOptions{By: ann}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			if ran, _ := f.watch.ticks("a"); ran == 0 || f.watch.startsOf("a", time.Time{}) != i+1 {
				t.Errorf("after %d triggers: %d runs", i+1, f.watch.startsOf("a", time.Time{}))
			}
		}
		if st, _ := roomy.Status().Timer("a"); st.Last == nil {
			t.Errorf("%+v", st)
		}
		full.Cancel()
		time.Sleep(time.Minute)
		f.Stop(roomy)
	})
}

// When the host drains, ticks in line are skipped, and nothing is left.
//
// Fails when the line is not emptied.
func TestMaxRunsDraining(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{MaxRuns: 2}, tenants(10, timer.Timer{Run: f.handler(10 * time.Second)})...)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
		if err := h.Remove(t.Context(), "tenant-0"); err != nil { // its tick waits, or its run ends within 10 s
			t.Error(err)
		}
		if took := h.Stopped(t); took > 11*time.Second {
			t.Errorf("draining took %v", took)
		}
		_, skipped := h.Accounted(t)
		if n := h.Status().Waiting; n != 0 || skipped[timer.ReasonDraining] < 4 {
			t.Errorf("%d wait, skipped %v", n, skipped)
		}
	})
}

// If a place was reserved for a tick that may not start after all, the next tick in line gets the
// place.
//
// Fails when gate.try does not call giveUp.
func TestMaxRunsPlaceIsPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{MaxRuns: 1}, append(tenants(20, timer.Timer{Run: f.handler(time.Second)}),
			timer.Timer{Name: "black", Schedule: schedule.Cron("* * * * *", "UTC"), Run: f.handler(0),
				Blackouts: []schedule.Blackout{fromSecond2{}}})...)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
		for i := range 5 {
			name, until := fmt.Sprintf("tenant-%d", i), time.Now().Add(time.Hour)
			if err := h.Control().Pause(t.Context(), name, until, ann); err != nil {
				t.Fatal(err)
			}
		}
		h.Link.InjectN(3, dlocktest.Error(errors.New("connection refused")), dlocktest.OpAcquire)
		time.Sleep(50 * time.Second)
		if st := h.Status(); st.Waiting != 0 {
			t.Errorf("%d wait", st.Waiting)
		}
		if st, _ := h.Status().Timer("black"); st.Skipped[timer.ReasonBlackout]+st.Started != 1 {
			t.Errorf("%+v", st)
		}
		started, skipped := h.Accounted(t)
		if started < 14 || skipped[timer.ReasonMaxRuns] != 0 {
			t.Errorf("%d started, skipped %v", started, skipped)
		}
		f.Stop()
	})
}

// fromSecond2 is a blackout that begins two seconds after each full minute.
type fromSecond2 struct{}

func (fromSecond2) Until(t time.Time) time.Time {
	if t.Second() < 2 {
		return time.Time{}
	}
	return t.Truncate(time.Minute).Add(time.Minute)
}

// I11: all faults of MaxRuns are returned together.
func TestI11FaultsOfMaxRuns(t *testing.T) {
	_, err := timer.New(timer.Config{MaxRuns: -2, OnMaxRuns: 7, MaxWait: -time.Second,
		Logger: slog.New(slog.DiscardHandler)})
	for _, want := range []string{"MaxRuns: -2", "OnMaxRuns: 7", "MaxWait: -1s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nmust say %q", err, want)
		}
	}
	for _, n := range []int{0, timer.NoLimit, 1} {
		if _, err := timer.New(timer.Config{MaxRuns: n}); err != nil {
			t.Error(err)
		}
	}
}

// If a tick waits for a run to end and then in line because of MaxRuns, or in the other order, the
// total wait is at most MaxWait.
//
// Fails when decide ignores how long the tick has already waited.
func TestMaxWaitIsForBothWaits(t *testing.T) {
	for _, lineFirst := range []bool{false, true} {
		t.Run(fmt.Sprint("line first ", lineFirst), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				held, err := otherSession(t, f.store).Semaphore("timer:a", 1).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				release := make(chan struct{})
				h := f.start(timer.Config{MaxRuns: 1, MaxWait: 10 * time.Minute},
					timer.Timer{Name: "busy", LocalOnly: true,
						Run: func(context.Context) error { <-release; return nil }},
					timer.Timer{Name: "a", Schedule: schedule.Every(time.Hour).Offset(0), OnFull: timer.FullWait,
						Run: f.handler(0)})
				trigger := func() {
					if err := h.Trigger(t.Context(), "busy"); err != nil {
						t.Fatal(err)
					}
				}
				if lineFirst {
					trigger()
				}
				time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 9*time.Minute)))
				if lineFirst {
					close(release)
				} else {
					trigger()
				}
				time.Sleep(30 * time.Second)
				if st := must(h.Status().Timer("a")); len(st.Skipped) != 0 || lineFirst == st.WaitingTick.IsZero() ||
					lineFirst == (h.Status().Waiting == 1) {
					t.Errorf("after 9.5 minutes: %+v", st)
				}
				time.Sleep(time.Minute)
				if st := must(h.Status().Timer("a")); len(st.Skipped) != 1 {
					t.Errorf("after 10.5 minutes, it still waits: %+v", st)
				}
				if !lineFirst {
					close(release)
				}
				if err := held.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.ended()
			})
		})
	}
}
