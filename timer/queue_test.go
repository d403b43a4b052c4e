package timer_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
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

// If ten thousand timers are due at the same time, a timer that is due every second loses none of
// its ticks, and none of the ten thousand loses its tick. A tick that has waited long also gets its
// turn while frequent timers take as many turns as they can.
//
// Fails when the queue is served in the order of arrival ("often" then loses 30 ticks), or only in
// the order of the next ticks (the peak then gets no turn).
func TestAPeakStarvesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		peak := testkit.Rounds(t, 4_000, 10_000)
		timers := many(peak, once(time.Now().Add(time.Second)), f.handler(0))
		timers = append(timers, timer.Timer{Name: "often", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		h := f.start(timer.Config{}, timers...)
		h.Link.Inject(dlocktest.Slow(200*time.Millisecond), dlocktest.OpAcquire)
		time.Sleep(time.Minute)
		often, _ := h.Status().Timer("often")
		if often.Started < 58 {
			t.Errorf("%d ticks of 60 started, skipped %v", often.Started, often.Skipped)
		}
		if started, skipped := h.Accounted(t); started != often.Started+uint64(peak) {
			t.Errorf("%d ticks of the peak started, skipped %v", started-often.Started, skipped)
		}
		f.Stop()
	})
	// The load exceeds the store's capacity: 500 calls per second, of which it answers 320.
	t.Run("overload", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := newFleet(t)
			timers := many(500, schedule.Every(time.Second).Offset(0), f.handler(0))
			timers = append(timers, timer.Timer{Name: "rarely",
				Schedule: schedule.Every(24 * time.Hour).Offset(5500 * time.Millisecond), Run: f.handler(0)})
			h := f.start(timer.Config{}, timers...)
			h.Link.Inject(dlocktest.Slow(200*time.Millisecond), dlocktest.OpAcquire)
			time.Sleep(30 * time.Second)
			if st, _ := h.Status().Timer("rarely"); st.Started != 1 {
				t.Errorf("%+v", st)
			}
			triggered := make(chan time.Duration, 1)
			go func() {
				began := time.Now()
				if err := h.Trigger(t.Context(), "rarely"); err != nil {
					t.Error(err)
				}
				triggered <- time.Since(began)
			}()
			if took := <-triggered; took > time.Second {
				t.Errorf("Trigger took %v", took)
			}
			var x timer.Explanation
			tick := time.Now().Truncate(time.Second)
			for i := 0; i < 500 && x.Reason != timer.ReasonStoreBusy; i++ { // a third of them got no turn
				var err error
				if x, err = h.Explain(t.Context(), strconv.Itoa(i), tick.Add(-5*time.Second)); err != nil {
					t.Error(err)
				}
			}
			if !strings.Contains(x.Text, ": store_busy: 64 calls to the store were under way") {
				t.Error(x)
			}
			f.Stop()
			if _, skipped := h.Accounted(t); skipped[timer.ReasonStoreBusy] < 1000 || skipped[timer.ReasonMissed] != 0 {
				t.Errorf("skipped %v, want its own reason", skipped)
			}
		})
	})
}

// However many callers call Trigger at the same time, at most 64 calls to the store are in flight.
// All other calls wait, and ticks also get their turn.
//
// Fails when Trigger does not wait in the queue.
func TestTriggersInFlightAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := &countingLock{DistributedLock: memlock.New(), delay: 100 * time.Millisecond}
		f := newFleet(t)
		h := f.startOn(slow, timer.Config{},
			timer.Timer{Name: "import", MaxConcurrency: 10_000, Run: func(ctx context.Context) error {
				return sleep(ctx,
					time.Hour)
			}},
			timer.Timer{Name: "tick", Schedule: schedule.Every(time.Second), Run: nop})
		var all sync.WaitGroup
		var failed atomic.Int64
		for range 1000 {
			all.Go(func() {
				if err := h.Trigger(t.Context(), "import"); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		if most := slow.most.Load(); most > 64+1 { // plus the host's own probe
			t.Errorf("%d calls at once, want 64", most)
		}
		st := h.Status()
		if im, _ := st.Timer("import"); len(im.Running) != 1000 || failed.Load() != 0 {
			t.Errorf("%d run, %d failed", len(im.Running), failed.Load())
		}
		if tick, _ := st.Timer("tick"); tick.Started < 10 || len(tick.Skipped) > 0 {
			t.Errorf("%+v", tick)
		}
		h.Accounted(t)
		f.Stop()
	})
}

// A Trigger that waits for its turn stops waiting when its context ends, the timer is removed, or
// the host drains.
//
// Fails when Remove or Scheduler.drain leaves waiting callers in the queue, or when a caller that
// has given up gets a turn.
func TestTriggerWaitsNoLongerThanItHasTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{StoreTimeout: 5 * time.Second}, append(many(3, nil, f.handler(0)),
			timer.Timer{Name: "many", MaxConcurrency: 1000, Run: f.handler(0)})...)
		time.Sleep(time.Minute) // until the host has its own slot
		h.Link.Inject(dlocktest.Slow(3*time.Second), dlocktest.OpAcquire)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { _ = h.Trigger(t.Context(), "many") })
		}
		synctest.Wait()
		trigger := func(ctx context.Context, name string) (took func() (time.Duration, error)) {
			done, began := make(chan error, 1), time.Now()
			var d time.Duration
			go func() { err := h.Trigger(ctx, name); d = time.Since(began); done <- err }()
			synctest.Wait()
			return func() (time.Duration, error) { err := <-done; return d, err }
		}
		impatient, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		first, second, third := trigger(impatient, "0"), trigger(t.Context(), "1"), trigger(t.Context(), "2")
		if d, err := first(); d != 100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, timer.ErrRefused) {
			t.Errorf("whose context ended: %v after %v", err, d)
		}
		if err := h.Remove(t.Context(), "1"); err != nil {
			t.Error(err)
		}
		if d, err := second(); d != 100*time.Millisecond || !errors.Is(err, timer.ErrNoTimer) {
			t.Errorf("whose timer was removed: %v after %v", err, d)
		}
		time.Sleep(100 * time.Millisecond)
		h.Cancel()
		if d, err := third(); d != 200*time.Millisecond || !refused(err, timer.ReasonDraining) {
			t.Errorf("whose host drains: %v after %v", err, d)
		}
		all.Wait()
		if err := h.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// When Trigger has returned, Status shows the run.
//
// Fails when Trigger lets another goroutine begin the run.
func TestTriggerReturnsWhenStatusShowsTheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "shared", MaxConcurrency: 1000, Run: f.handler(time.Hour)},
			timer.Timer{Name: "local", LocalOnly: true, MaxConcurrency: 1000, Run: f.handler(time.Hour)},
			timer.Timer{Name: "down", MaxConcurrency: 1000, Run: f.handler(time.Hour)})
		for n := range 100 {
			for _, name := range []string{"shared", "local", "down"} {
				if name == "down" && n == 0 {
					h.Link.Inject(dlocktest.Error(errors.New("no")), dlocktest.OpAcquire)
				}
				if err := h.Trigger(t.Context(), name); err != nil {
					t.Error(err)
				}
				if st, _ := h.Status().Timer(name); len(st.Running) != n+1 {
					t.Errorf("%s: Status shows %d runs after %d calls of Trigger", name, len(st.Running), n+1)
				}
			}
		}
		for _, h := range f.Hosts {
			h.Cancel()
			h.Wait()
		}
	})
}
