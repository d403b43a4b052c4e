package timer

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// dueAgain returns a scheduler with metrics and a logger, and one timer that is due whenever the
// test calls tick. It sets only hooks that a tick does not call.
func dueAgain(
	t testing.TB, lock dlock.DistributedLock, run func(context.Context) error,
) (s *Scheduler, tick func()) {
	t.Helper()
	return dueAgainWith(t, Hooks{StoreDown: func(StoreInfo) {}}, lock, run)
}

func dueAgainWith(
	t testing.TB, hooks Hooks, lock dlock.DistributedLock, run func(context.Context) error,
) (s *Scheduler, tick func()) {
	t.Helper()
	testkit.SkipRace(t)
	s, err := New(Config{Store: lock, Registerer: prometheus.NewRegistry(), Hooks: hooks,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
		Timer{Name: "a", Schedule: schedule.Every(5 * time.Second), Run: run})
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	until, set := make(chan struct{}), s.registry.get("a")
	tick = func() {
		e := set.entry
		e.ticks.next = time.Now().UnixMicro()
		s.planner.heap[0].when, e.planned = e.ticks.next, e.ticks.next
		s.planner.runDue(until)
		for busy := true; busy; runtime.Gosched() { // until the run that tick has started has ended
			busy = s.registry.busy()
		}
	}
	for range 2 * historyLen { // until everything that is allocated once exists
		tick()
	}
	return s, tick
}

// The planner allocates nothing when nothing is due.
//
// Fails when runDue allocates a new batch.
func TestNothingDueAllocatesNothing(t *testing.T) {
	s, _ := dueAgain(t, nil, func(context.Context) error { return nil })
	until := make(chan struct{})
	if n := testing.AllocsPerRun(1000, func() { s.planner.runDue(until) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// A run without a store allocates its Run, the timer of its MaxRunTime and a goroutine (its
// function, and the list of runs that it begins). Metrics add nothing.
//
// Fails when a run's context is created although it is not used. Also fails when runStarted or
// logEnd builds attributes for a line that is not logged, or arguments for a hook that is not set.
func TestAllocationsOfARun(t *testing.T) {
	_, tick := dueAgain(t, nil, func(ctx context.Context) error { _, _ = RunFromContext(ctx); return nil })
	if n := testing.AllocsPerRun(1000, tick); n > 5 {
		t.Errorf("%v allocations, want at most 5", n)
	}
}

// A run with a store, metrics and a logger allocates little more than acquiring and releasing its
// slot does.
//
// Fails when the lines of a run, or the arguments of a hook that is not set, are built although
// nothing uses them.
func TestAllocationsOfARunWithAStore(t *testing.T) {
	store := memlock.New()
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slot := session.Semaphore("timer:b", 1)
	bare := testing.AllocsPerRun(1000, func() {
		lease, err := slot.TryAcquireTick(t.Context(), driver.Tick{At: time.Now(), Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	_, tick := dueAgain(t, store, func(ctx context.Context) error { _, _ = RunFromContext(ctx); return nil })
	n := testing.AllocsPerRun(1000, tick)
	t.Logf("%v allocations, of which %v are the slot's", n, bare)
	if n > bare+15 {
		t.Errorf("%v allocations, %v in addition to those of the slot; want at most 15", n, n-bare)
	}
}

// A tick that finds every slot held allocates three more objects than the store does: two in
// package dlock, and the arguments of a goroutine. A tick for which "full" is cached allocates
// nothing.
//
// Fails when the name in the store is built for each attempt, when the claim of the tick is a
// pointer, when stillFull is not called, or when ticksSkipped does not check whether a hook is set.
func TestAllocationsOfATickThatFindsItFull(t *testing.T) {
	store := memlock.New()
	other, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := other.Semaphore("timer:a", 1).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s, tick := dueAgain(t, store, func(context.Context) error { t.Error("it ran"); return nil })
	asks := func() {
		_, err := other.Semaphore("timer:a", 1).TryAcquireTick(t.Context(), driver.Tick{At: time.Now(), Max: 1})
		if reasonOf(err) != ReasonFull {
			t.Fatal(err)
		}
	}
	bare, whole := testing.AllocsPerRun(1000, asks), testing.AllocsPerRun(1000, tick)
	t.Logf("%v allocations, of which %v are the lease's", whole, bare)
	if whole > bare+1 {
		t.Errorf("%v allocations, %v more than the call of the store; want one more", whole, whole-bare)
	}
	set := s.registry.get("a")
	e := set.entry
	if e.record.skipped[ReasonFull] < 1000 {
		t.Fatalf("skipped: %v", e.record.skipped)
	}
	e.view.full = fullAnswer{&dlock.NotAcquiredError{Reason: dlock.ReasonFull}, time.Since(programStart) + time.Hour,
		set.limit()}
	if n := testing.AllocsPerRun(1000, tick); n != 0 {
		t.Errorf("%v allocations with a remembered answer, want 0", n)
	}
}

// An event allocates little more than the arguments of the hook, a closure that calls the hook, and
// its place in the queue. If nothing else is queued, the queue and the goroutine that calls the
// hooks are also new.
//
// Fails when send keeps more of an event than the call of its hook.
func TestAllocationsOfHooks(t *testing.T) {
	run := func(context.Context) error { return nil }
	_, tick := dueAgain(t, nil, run)
	without := testing.AllocsPerRun(1000, tick)
	var starts, ends atomic.Int64
	_, tick = dueAgainWith(t, Hooks{RunStarted: func(RunInfo) { starts.Add(1) },
		RunEnded: func(RunResult) { ends.Add(1) }}, nil, run)
	n := testing.AllocsPerRun(1000, tick) - without
	t.Logf("%v allocations for two events", n)
	if n > 8 || starts.Load() == 0 || ends.Load() == 0 {
		t.Errorf("%v allocations for two events, want at most 8; the hooks got %d starts, %d ends", n, starts.Load(),
			ends.Load())
	}
}
