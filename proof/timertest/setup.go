package timertest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// setUpTTL is the TTL of these hosts.
const setUpTTL = 3 * time.Second

// onStore returns timers that run without their store if it does not answer.
func onStore(t *testing.T, lock dlock.DistributedLock, runs *atomic.Int64) *timer.Scheduler {
	t.Helper()
	s, err := timer.New(timer.Config{Store: lock, TTL: setUpTTL, Logger: slog.New(slog.DiscardHandler)},
		timer.Timer{Name: "a", Schedule: schedule.Every(50 * time.Millisecond),
			Run: func(context.Context) error { runs.Add(1); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NotSetUp starts a host on a store that refuses every request. Run must fail at once, and the
// error must say how to fix the store.
func NotSetUp(t *testing.T, lock dlock.DistributedLock, words string) {
	t.Helper()
	var runs atomic.Int64
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	err := onStore(t, lock, &runs).Run(ctx)
	if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), words) || ctx.Err() != nil {
		t.Errorf("Run returned %v: want an error that matches dlock.ErrSetup and has %q in it", err, words)
	}
	if n := runs.Load(); n > 0 {
		t.Errorf("%d runs", n)
	}
}

// SetUpWronglyForAWhile breaks a store's setup while a host runs timers on it, and repairs it.
// Meanwhile nothing may run, every tick must be accounted for, and the host must report the fault
// within a TTL. Afterwards it must continue without a restart.
func SetUpWronglyForAWhile(t *testing.T, lock dlock.DistributedLock, breakIt, repair func()) {
	t.Helper()
	var runs atomic.Int64
	s := onStore(t, lock, &runs)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	within := func(limit time.Duration, what string, cond func() bool) {
		t.Helper()
		if err := testkit.Poll(limit, what, cond); err != nil {
			t.Fatalf("%v; %+v", err, s.Status())
		}
	}
	within(10*time.Second, "it runs", func() bool { return runs.Load() > 3 })
	breakIt()
	within(setUpTTL, "the host says so", func() bool {
		st := s.Status().Store
		return s.StoreReachable() != nil && st.NotSetUp && st.BreakerOpen && !st.Up
	})
	before := s.Status().Timers[0]
	// On a busy machine, some ticks are skipped because the previous one is still waiting for its
	// answer.
	within(patience, "twenty ticks are skipped for that reason", func() bool {
		return s.Status().Timers[0].Skipped[timer.ReasonStoreSetup] >= before.Skipped[timer.ReasonStoreSetup]+20
	})
	if now := s.Status().Timers[0]; now.Started != before.Started ||
		now.Skipped[timer.ReasonStoreSetup] < before.Skipped[timer.ReasonStoreSetup]+19 {
		t.Errorf("before %+v, after twenty ticks %+v", before, now)
	}
	var triggered error
	within(patience, "Trigger says so", func() bool {
		_, triggered = s.Trigger(ctx, "a", timer.TriggerOptions{})
		no, refused := errors.AsType[*timer.RefusedError](triggered)
		return !refused || no.Reason != timer.ReasonHostFull // else a tick waits for its answer
	})
	if !errors.Is(triggered, dlock.ErrSetup) {
		t.Errorf("Trigger returned %v", triggered)
	}
	repair()
	within(2*setUpTTL, "it runs again", func() bool {
		return runs.Load() > int64(before.Started)+3 &&
			s.StoreReachable() == nil
	})
	if st := s.Status().Timers[0]; st.Fallback {
		t.Errorf("%+v", st)
	}
	stop()
	if err := receive(t, "Run returns", done); err != nil {
		t.Error(err)
	}
}
