package timer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A quarantine is logged once, and Degraded reports it while it lasts. If the next tick is due
// before the quarantine ends, a tick that is refused because of it is skipped. Otherwise the tick
// is tried as soon as the quarantine ends. A tick that still waits when Run drains, or is refused
// after that, is skipped.
//
// Fails when beginQuarantine does not log, or logs each time, when decide ignores the next tick,
// does not wake the loop, or makes a tick wait while draining, or when Scheduler.drain loses
// waiting ticks.
func TestI9QuarantinedTicksAreAccountedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var log testkit.Log
		start := time.Now()
		ends := start.Add(33 * time.Second)
		config := timer.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		store := func() dlock.DistributedLock { return &quarantine{DistributedLock: f.store, until: ends} }
		var ran atomic.Int64
		daily := func(at time.Duration) timer.Timer {
			return timer.Timer{Name: "daily", Schedule: once(start.Add(at)), Run: func(context.Context) error {
				ran.Store(int64(time.Since(ends)))
				return nil
			}}
		}
		waits := f.startOn(store(), config, daily(25*time.Second))
		waits.Link.Inject(dlocktest.Slow(50 * time.Millisecond)) // the loop sleeps again before the answer comes
		busy := f.startOn(store(), config, timer.Timer{Name: "busy", Schedule: schedule.Every(time.Second),
			Run: f.handler(0)})
		drained := f.startOn(store(), timer.Config{}, daily(time.Second))
		late := f.startOn(store(), timer.Config{}, daily(20*time.Second-100*time.Millisecond))
		late.Link.Inject(dlocktest.Slow(300 * time.Millisecond)) // so that it is refused after Run has begun to drain
		time.Sleep(20 * time.Second)
		for _, h := range []*host{drained, late} {
			if h.Stopped(t); h.Status().Timers[0].Skipped[timer.ReasonQuarantine] != 1 {
				t.Errorf("%+v, want its tick skipped", h.Status().Timers[0])
			}
			h.Accounted(t)
		}
		busy.Accounted(t) // none of its ticks waits
		time.Sleep(6 * time.Second)
		for _, h := range []*host{waits, busy} {
			if err := h.Degraded(); err == nil || !strings.Contains(err.Error(), "the store restarted") {
				t.Errorf("degraded: %v", err)
			}
		}
		time.Sleep(20 * time.Second)
		if late := time.Duration(ran.Load()); late <= 0 || late > 200*time.Millisecond {
			t.Errorf("the tick was tried %v after the end", late)
		}
		for _, h := range []*host{waits, busy} {
			if err := h.Degraded(); err != nil {
				t.Errorf("degraded after the end: %v", err)
			}
			h.Stopped(t)
			h.Accounted(t)
		}
		if n := strings.Count(log.String(), "grants nothing until the old"); n != 2 {
			t.Errorf("logged %d times by two hosts:\n%s", n, log.String())
		}
	})
}

// A different MaxConcurrency on other hosts is noticed from a grant and from a refusal. It is
// forgotten once it is gone.
//
// Fails when views do not read the Info of a grant or of a refusal, or when compareSlots does not
// forget.
func TestDisagreementEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		two := f.start(timer.Config{}, timer.Timer{Name: "a", MaxConcurrency: 2, Run: f.handler(10 * time.Second)})
		one := f.start(timer.Config{}, timer.Timer{Name: "a", MaxConcurrency: 1, Run: f.handler(10 * time.Second)})
		trigger := func(h *host, want error) {
			t.Helper()
			if err := h.Trigger(t.Context(), "a"); !errors.Is(err, want) {
				t.Errorf("Trigger returned %v", err)
			}
		}
		declared := func(want int, when string) {
			t.Helper()
			if st := one.Status().Timers[0]; st.LimitElsewhere != want || (one.Degraded() != nil) != (want != 0) {
				t.Errorf("%s: declared elsewhere %d, want %d; degraded: %v", when, st.LimitElsewhere, want,
					one.Degraded())
			}
		}
		trigger(two, nil)
		trigger(one, timer.ErrRefused)
		declared(2, "after a refusal")
		time.Sleep(11 * time.Second)
		trigger(one, nil)
		declared(2, "after a grant")
		time.Sleep(11 * time.Second)
		trigger(one, nil)
		declared(2, "while the other may only be between two ticks")
		time.Sleep(time.Minute)
		trigger(one, nil)
		declared(0, "after the other was silent")
		f.Stop()
	})
}
