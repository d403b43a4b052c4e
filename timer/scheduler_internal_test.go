package timer

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// If the scheduling goroutine has to end while user code runs, the items that it has taken from the
// heap and not yet handled are put back, so that they are counted.
//
// Fails when runDue does not put back the rest of userCode.
func TestNothingTakenIsForgotten(t *testing.T) {
	until := make(chan struct{})
	asked, end := 0, func() {}
	ends := schedule.BlackoutFunc(func(time.Time) bool { asked++; end(); return false })
	run := func(context.Context) error { return nil }
	var timers []Timer
	for _, name := range []string{"a", "b", "c"} {
		timers = append(timers, Timer{Name: name, Schedule: schedule.Every(time.Hour), Run: run,
			Blackouts: []schedule.Blackout{ends}})
	}
	s, err := New(Config{}, timers...)
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	s.planner.clock.skew.Store(int64(2 * time.Hour)) // all are due
	asked, end = 0, sync.OnceFunc(func() { close(until) })
	s.planner.runDue(until)
	left, now := 0, s.planner.now().UnixMicro()
	for _, it := range s.planner.heap {
		if it.when <= now && it.when == it.e.planned {
			left++
		}
	}
	if asked == 0 || left != 2 {
		t.Errorf("%d are left of three, want two; their blackouts were asked %d times", left, asked)
	}
}

// Remove leaves the items of its timer in the heap, where they have no effect. It scans the heap
// only if half of the heap consists of such items.
//
// Fails when Remove scans the heap each time, or never.
func TestRemoveRarelyScansTheHeap(t *testing.T) {
	const n = 1000
	ran := make(chan string, n)
	var timers []Timer
	for i := range n {
		name := strconv.Itoa(i)
		timers = append(timers, Timer{Name: name, Schedule: schedule.Every(time.Hour),
			Run: func(context.Context) error { ran <- name; return nil }})
	}
	s, err := New(Config{}, timers...)
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	swept, was := 0, n
	for i := range n - 1 {
		if err := s.Remove(t.Context(), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		if len(s.planner.heap) < was {
			swept++
			was = len(s.planner.heap)
		}
		if left := n - 1 - i; len(s.planner.heap) > 2*left+2 {
			t.Fatalf("%d items of %d timers", len(s.planner.heap), left)
		}
	}
	if swept > 20 {
		t.Errorf("%d times of %d the whole heap was scanned", swept, n)
	}
	s.registry.mu.Lock()
	now := time.Now().UnixMicro()
	for i := range s.planner.heap {
		it := &s.planner.heap[i]
		if it.e.planned == it.when {
			it.e.planned = now
		}
		it.when, it.e.ticks.next = now, now // all are due
	}
	s.registry.mu.Unlock()
	until := make(chan struct{})
	s.planner.runDue(until)
	if name := <-ran; name != strconv.Itoa(n-1) {
		t.Errorf("%s ran, which was removed", name)
	}
	testkit.Eventually(t, testkit.Patience, "no run is in progress", func() bool { return !s.registry.busy() })
	if len(ran) != 0 || len(s.planner.heap) != 1 || s.planner.dropped != 0 {
		t.Errorf("%d ran, %d items are left, %d are counted as dropped", len(ran), len(s.planner.heap),
			s.planner.dropped)
	}
}

// A timer that is updated while Run begins, and before Run has planned it, runs on start if its new
// settings say so. No other Update makes a timer run.
//
// Fails when planner.proceed treats a timer that planner.begin has not planned as one that has
// started, or vice versa.
func TestUpdateWhileRunBeginsRunsOnStart(t *testing.T) {
	for _, began := range []bool{false, true} {
		for _, every := range []time.Duration{time.Hour, time.Minute} { // the same schedule, and a different one
			var s *Scheduler
			update := func() {
				for range 2 {
					if err := s.Update(Timer{Name: "a", Schedule: schedule.Every(every),
						RunOnStart: RunOnStartEachHost, Run: nothing}); err != nil {
						t.Error(err)
					}
				}
			}
			asked := func() {}
			before := Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing}
			if !began {
				before.Schedule = scheduleFunc(func(after time.Time) time.Time {
					asked()
					return after.Truncate(time.Hour).Add(time.Hour)
				})
			}
			s, err := New(Config{}, before)
			if err != nil {
				t.Fatal(err)
			}
			if !began {
				asked = sync.OnceFunc(update)
			}
			s.start(t.Context())
			if began {
				update()
			}
			starts := 0
			for _, p := range s.waiting.close() {
				if p.onStart {
					starts++
				}
			}
			if want := map[bool]int{false: 1}[began]; starts != want {
				t.Errorf("began %v, every %v: %d starts, want %d", began, every, starts, want)
			}
		}
	}
}
