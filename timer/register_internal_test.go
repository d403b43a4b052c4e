package timer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/tickslot/tickslot/schedule"
)

// If a thousand timers are updated repeatedly, the items of their earlier ticks do not fill the
// heap. Each timer has its own settings, so settings stay small.
//
// Fails when Update leaves all earlier items in the heap.
func TestUpdatesDoNotFillTheHeap(t *testing.T) {
	s, err := New(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		a := Timer{Name: fmt.Sprint("a", i), Schedule: schedule.Every(time.Hour), Run: nothing}
		if err := s.Register(a); err != nil {
			t.Fatal(err)
		}
	}
	s.start(context.Background())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range 20_000 {
		if err := s.Update(Timer{Name: fmt.Sprint("a", n%1000), Schedule: schedule.Every(time.Hour + time.Duration(n)),
			Run: nothing}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := len(s.planner.heap); n > 3000 {
		t.Errorf("%d items in the heap for 1,000 timers", n)
	}
	t.Logf("%d bytes for each update", (after.TotalAlloc-before.TotalAlloc)/20_000)
	if n := unsafe.Sizeof(settings{}); n > 256 {
		t.Errorf("settings take %d bytes", n)
	}
}

// The clock is set back while Update calls the new schedule of a timer. The timer is planned once,
// by the new time.
//
// Fails when planner.proceed keeps a plan that was made by the old time.
func TestUpdateWhileTheClockIsSetBack(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(time.Minute).Offset(0), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.start(context.Background())
	stepped := false
	back := scheduleFunc(func(after time.Time) time.Time {
		if set := s.registry.get("a"); !stepped && set.entry.failures == planning {
			stepped = true
			s.planner.clock.skew.Store(int64(-24 * time.Hour))
			s.planner.replan(s.planner.now())
		}
		return after.Truncate(time.Minute).Add(time.Minute)
	})
	if err := s.Update(Timer{Name: "a", Schedule: back, Run: nothing}); err != nil || !stepped {
		t.Fatal(err, stepped)
	}
	live := 0
	for _, it := range s.planner.heap {
		if it.when == it.e.planned {
			live++
		}
	}
	next, _ := s.registry.get("a").entry.ticks.read()
	if wait := time.UnixMicro(next).Sub(s.planner.now()); live != 1 || wait > time.Minute || wait < 0 {
		t.Errorf("%d items in the heap, the next tick in %v", live, wait)
	}
}

// The clock is set back while Register calls the schedule of a timer. The timer is planned by the
// new time.
//
// Fails when a new timer waits until the clock has caught up.
func TestRegisterWhileTheClockIsSetBack(t *testing.T) {
	s, err := New(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.start(context.Background())
	s.planner.clock.skew.Store(int64(24 * time.Hour))
	back := scheduleFunc(func(after time.Time) time.Time {
		s.planner.clock.skew.Store(0)
		return after.Truncate(time.Minute).Add(time.Minute)
	})
	if err := s.Register(Timer{Name: "a", Schedule: back, Run: nothing}); err != nil {
		t.Fatal(err)
	}
	next, _ := s.registry.get("a").entry.ticks.read()
	if wait := time.UnixMicro(next).Sub(s.planner.now()); len(s.planner.heap) != 1 || wait > time.Minute || wait < 0 {
		t.Errorf("%d items in the heap, the next tick in %v", len(s.planner.heap), wait)
	}
}

type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }
