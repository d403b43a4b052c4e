package timer

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// A hundred thousand timers that are not due cost at most 1 KB each, with and without metrics, and
// no goroutine each. The user's own names and functions are not counted.
//
// Fails when history preallocates room for all its decisions.
func TestIdleTimersAreSmall(t *testing.T) {
	testkit.SkipRace(t)
	n := testkit.Rounds(t, 20_000, 100_000) // with few timers, the shared memory weighs more per timer
	t.Run("without metrics", func(t *testing.T) { idleTimersAreSmall(t, n, nil) })
	t.Run("with metrics", func(t *testing.T) { idleTimersAreSmall(t, n, prometheus.NewRegistry()) })
}

func idleTimersAreSmall(t *testing.T, n int, registerer prometheus.Registerer) {
	const limit = 1000
	timers := make([]Timer, n)
	run := func(context.Context) error { return nil }
	// Keep the ticks away from now. A tick at midnight would run if the test runs then, or within
	// the hour after it.
	daily := schedule.Every(24 * time.Hour).From(time.Now().Add(12 * time.Hour))
	for i := range timers {
		timers[i] = Timer{Name: "timer-" + strconv.Itoa(i), Schedule: daily, MaxConcurrency: 3, MaxPerTick: 3, Run: run}
	}
	before, goroutines := heapInUse(), runtime.NumGoroutine()
	s, err := New(Config{Store: memlock.New(), Registerer: registerer,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, timers...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	testkit.Eventually(t, 10*time.Second, "it has started and sorted its announcements", func() bool {
		s.announcer.mu.Lock()
		defer s.announcer.mu.Unlock()
		return s.Ready() == nil && s.announcer.next != nil
	})
	each := (heapInUse() - before) / int64(n)
	t.Logf("%d bytes per idle timer", each)
	if each > limit {
		t.Errorf("%d bytes per idle timer, at most %d", each, limit)
	}
	if extra := runtime.NumGoroutine() - goroutines; extra > 10 {
		t.Errorf("%d goroutines for %d idle timers", extra, n)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(timers)
}

// This test measures the memory of a timer that has run once, and of a timer that has run often,
// without metrics and without the user's own names and functions.
//
// Fails when history preallocates room for all its decisions.
func TestTimersThatHaveRunAreSmall(t *testing.T) {
	testkit.SkipRace(t)
	const n = 5_000
	timers := make([]Timer, n)
	run := func(context.Context) error { return nil }
	for i := range timers {
		timers[i] = Timer{Name: "timer-" + strconv.Itoa(i), Schedule: schedule.Every(24 * time.Hour), Run: run}
	}
	// The runtime keeps the descriptors of goroutines, so create as many as may run at the same
	// time beforehand.
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range n {
		all.Go(func() { <-begin })
	}
	close(begin)
	all.Wait()
	before := heapInUse()
	s, err := New(Config{Logger: slog.New(slog.DiscardHandler)}, timers...)
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	until := make(chan struct{})
	for _, c := range []struct {
		runs  int
		limit int64
	}{{1, 1050}, {historyLen, 1600}} {
		started := func() (n uint64) {
			e := s.registry.get("timer-1").entry
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.record.started
		}
		for started() < uint64(c.runs) {
			now := time.Now().UnixMicro()
			for i := range s.planner.heap {
				it := &s.planner.heap[i]
				it.when, it.e.planned, it.e.ticks.next = now, now, now
			}
			s.planner.runDue(until)
			for busy := true; busy; runtime.Gosched() {
				busy = s.registry.busy()
			}
		}
		each := (heapInUse() - before) / n
		t.Logf("%d bytes per timer that has run %d times", each, c.runs)
		if each > c.limit {
			t.Errorf("%d bytes per timer that has run %d times, at most %d", each, c.runs, c.limit)
		}
	}
	runtime.KeepAlive(timers)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
