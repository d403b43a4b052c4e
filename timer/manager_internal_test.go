package timer

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// A round over a thousand rows that have not changed calls nothing but Rows and Name, and allocates
// what a round needs, nothing for a row.
//
// Fails when a timer is made of a row that has not changed.
func TestManagerRoundAllocates(t *testing.T) {
	t.Run("unchanged", func(t *testing.T) {
		s, m := managing(t, 1000)
		made := 0
		m.Timer = func(int) (Timer, error) { made++; return Timer{}, nil }
		before := s.registry.registered()
		allocs := testing.AllocsPerRun(20, func() {
			if err := m.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 20 && !testkit.RaceDetector || made != 0 || len(before) != 1000 {
			t.Errorf("%v allocations in a round, and %d timers made, of %d", allocs, made, len(before))
		}
	})
	t.Run("changed", func(t *testing.T) {
		s, m := managing(t, 1000)
		keep := m.Timer
		m.Timer = func(row int) (Timer, error) { return keep(row % 1000) }
		m.Name = func(row int) string { return names[row%1000] }
		var before, after runtime.MemStats
		rounds := 0
		rows := m.Rows
		m.Rows = func(ctx context.Context) ([]int, error) {
			list, err := rows(ctx)
			rounds++
			for i := range list {
				list[i] = i + 1000*rounds
			}
			return list, err
		}
		runtime.ReadMemStats(&before)
		for range 20 {
			if err := m.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if n := len(s.planner.heap); n > 3000 {
			t.Errorf("%d items in the heap for 1,000 timers", n)
		}
		t.Logf("%d bytes for each update", (after.TotalAlloc-before.TotalAlloc)/20_000)
	})
	if n := unsafe.Sizeof(settings{}); n > 256 {
		t.Errorf("settings take %d bytes", n)
	}
}

var names = make([]string, 1000)

func init() {
	for i := range names {
		names[i] = fmt.Sprint("tenant-", i)
	}
}

// managing returns a Manager of n timers, whose Scheduler has begun but does not run.
func managing(t *testing.T, n int) (*Scheduler, *Manager[int]) {
	t.Helper()
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	m := &Manager[int]{Scheduler: s,
		Rows: func(context.Context) ([]int, error) { return list, nil },
		Name: func(row int) string { return names[row] },
		Timer: func(int) (Timer, error) {
			return Timer{Schedule: schedule.Every(time.Hour), Run: nothing}, nil
		}}
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, m
}

// The clock is set back while Update asks the schedule of a new timer: the timer is planned once,
// by the new time.
//
// Fails when proceed keeps what it has asked by the old time.
func TestUpdateWhileTheClockIsSetBack(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(time.Minute).Offset(0), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
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

type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }
