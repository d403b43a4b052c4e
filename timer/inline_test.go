package timer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// fillHost takes the only place of a host, so that everything else waits in line.
func fillHost(t *testing.T, h *host) {
	t.Helper()
	if err := h.Trigger(t.Context(), "hog"); err != nil {
		t.Fatal(err)
	}
}

// When a tick reaches the head of the line, its blackouts are called again. It does not start in a
// blackout that has begun in the meantime, even if it had yielded to other hosts before.
//
// Fails when tick.anew leaves the tick marked as yielded.
func TestMaxRunsBlackoutBeginsInLine(t *testing.T) {
	for _, yields := range []bool{false, true} {
		t.Run(fmt.Sprint("yields ", yields), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				hour := time.Now().Truncate(time.Hour).Add(3 * time.Hour)
				night := schedule.Between(hour.Add(10*time.Minute), hour.Add(time.Hour))
				h := f.start(timer.Config{MaxRuns: 1},
					timer.Timer{Name: "hog", Run: f.handler(20 * time.Minute)},
					timer.Timer{Name: "x", Schedule: schedule.Cron("0 * * * *", "UTC"), LeastRecentFirst: yields,
						Blackouts: []schedule.Blackout{night}, Run: f.handler(0)})
				f.start(timer.Config{MaxRuns: 1}, timer.Timer{Name: "other", Run: f.handler(0)})
				time.Sleep(time.Until(hour.Add(-time.Minute)))
				fillHost(t, h)
				time.Sleep(30 * time.Minute)
				st, _ := h.Status().Timer("x")
				if st.Skipped[timer.ReasonBlackout] != 1 {
					t.Errorf("yields %v: %d started, skipped %v", yields, st.Started, st.Skipped)
				}
				f.Stop()
			})
		})
	}
}

// The only tick of a timer waits in line for longer than a finished timer remains registered. It
// runs when its turn comes, and only then is the timer removed.
//
// Fails when registry.retire ignores the waiting tick.
func TestMaxRunsOneShotWaitsInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{MaxRuns: 1},
			timer.Timer{Name: "hog", Run: f.handler(30 * time.Minute)},
			timer.Timer{Name: "once", Schedule: schedule.At(time.Now().Add(time.Minute)), Run: f.handler(0)})
		fillHost(t, h)
		time.Sleep(30*time.Minute + 30*time.Second)
		if st, ok := h.Status().Timer("once"); !ok || st.Started != 1 {
			t.Errorf("after the other run has ended: registered %v, %+v", ok, st)
		}
		time.Sleep(time.Hour)
		if _, ok := h.Status().Timer("once"); ok {
			t.Error("it is still registered an hour after its only run")
		}
		f.Stop()
	})
}

// A missed tick that waits in line until it is older than CatchUp.Window does not run.
//
// Fails when planner.recheck ignores the window.
func TestMaxRunsWindowEndsInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		x := timer.Timer{Name: "x", Schedule: schedule.Cron("0 * * * *", "UTC"), Run: f.handler(0),
			CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce, Window: 5 * time.Minute}}
		first := f.start(timer.Config{}, x)
		time.Sleep(90 * time.Minute)
		if err := first.Remove(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 2*time.Minute)))
		h := f.start(timer.Config{MaxRuns: 1}, timer.Timer{Name: "hog", Run: f.handler(40 * time.Minute)})
		fillHost(t, h)
		if err := h.Register(x); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		if st, _ := h.Status().Timer("x"); st.Started != 0 || st.Skipped[timer.ReasonMissed] == 0 {
			t.Errorf("%d started, skipped %v", st.Started, st.Skipped)
		}
		f.Stop()
	})
}

// I1: a run of a removed timer continues without the store, and a timer that does not have its
// limit takes the name. The old run gets no slot when the store is back, because it would have no
// permit.
//
// Fails when oldestWithoutSlot does not compare the limits.
func TestI1RunOfARemovedTimerGetsNoSlotWithoutItsPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		runs := make(chan *timer.Run, 1)
		long := func(ctx context.Context) error {
			r, _ := timer.RunFromContext(ctx)
			runs <- r
			return sleep(ctx, time.Hour)
		}
		h := f.start(smtp(1), timer.Timer{Name: "a", MaxRunTime: 2 * time.Hour, Limits: []string{"smtp"}, Run: long})
		h.Link.Inject(dlocktest.Hang)
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		old := <-runs
		other := newSession(t, f.store)
		if _, err := other.Semaphore("limit:smtp", 1).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = h.Remove(ctx, "a") // returns an error, because the run is in progress
		if err := h.Register(timer.Timer{Name: "a", Run: f.handler(0)}); err != nil {
			t.Fatal(err)
		}
		h.Link.Heal()
		for range 100 {
			time.Sleep(time.Second)
			if old.Valid() {
				t.Fatal("the old run is valid without its permit, which another run has")
			}
		}
		f.Stop()
		synctest.Wait()
	})
}

// newSession returns a session on a store. It is closed at the end of the test.
func newSession(t *testing.T, store dlock.DistributedLock) *dlock.Session {
	t.Helper()
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return session
}
