package timer

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// The heap returns items in the order of their times, whatever is pushed, popped and removed.
func TestHeapKeepsOrder(t *testing.T) {
	for range 200 {
		var h tickHeap
		var want []int64
		drop := &entry{planned: -1}
		for range rand.IntN(300) {
			when := rand.Int64N(100)
			if rand.IntN(10) == 0 {
				h.push(item{when: when, e: drop})
				continue
			}
			h.push(item{when: when, e: &entry{planned: when}})
			want = append(want, when)
			if rand.IntN(3) == 0 {
				// Pop an item and push it back, as Next does.
				it := h.pop()
				if i := slices.Index(want, it.when); i >= 0 && it.e != drop {
					want[i] += 10
					it.when += 10
					it.e.planned = it.when
				}
				h.push(it)
			}
		}
		h.removeStale()
		slices.Sort(want)
		for i, w := range want {
			if got := h.pop().when; got != w {
				t.Fatalf("item %d is %d, want %d", i, got, w)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d items left", len(h))
		}
	}
}

// The heap keeps one item per timer: the planned one.
//
// Fails when removeStale keeps an equal item, or leaves a mark in planned.
func TestHeapDropsWhatIsNotPlanned(t *testing.T) {
	var h tickHeap
	a, b, none := &entry{planned: 5}, &entry{planned: 9}, &entry{}
	for _, it := range []item{{when: 7, e: a}, {when: 5, e: a}, {when: 4, e: none}, {when: 5, e: a}, {when: 9, e: b},
		{when: 5, e: b}} {
		h.push(it)
	}
	for range 2 {
		h.removeStale()
	}
	var left []int64
	for len(h) > 0 {
		left = append(left, h.pop().when)
	}
	if !slices.Equal(left, []int64{5, 9}) || a.planned != 5 || b.planned != 9 || none.planned != 0 {
		t.Errorf("left %v, planned %d, %d and %d", left, a.planned, b.planned, none.planned)
	}
}

// The loop never sleeps for longer than maxSleep, because a step of the wall clock must not delay a
// tick by more. Remove leaves nothing behind.
//
// Fails when runDue ignores maxSleep, when it polls, or when Remove leaves the tick in the heap.
func TestLoopNeverSleepsForLong(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(1000 * time.Hour),
		Run: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	if len(s.planner.heap) != 1 {
		t.Errorf("%d items", len(s.planner.heap))
	}
	if d := s.planner.runDue(nil); d != maxSleep { // not less either, because the loop would then poll
		t.Errorf("it sleeps for %v", d)
	}
	if err := s.Remove(t.Context(), "a"); err != nil || len(s.planner.heap) != 0 ||
		len(s.registry.entries) != 0 {
		t.Errorf("%v, %d items left", err, len(s.planner.heap))
	}
	if d := s.planner.runDue(nil); d != maxSleep {
		t.Errorf("without a tick it sleeps for %v", d)
	}
}

// steppedBack detects a wall clock that was set back. It is not confused by a suspended machine, a
// clock that was set forward, or a clock that is slewed.
func TestSteppedBack(t *testing.T) {
	for _, c := range []struct {
		passed, shown time.Duration
		want          bool
	}{{10 * time.Second, 10 * time.Second, false}, {10 * time.Second, -time.Hour, true},
		{10 * time.Second, 8 * time.Second, true},
		{10 * time.Second, 9500 * time.Millisecond, false}, {10 * time.Second, time.Hour, false},
		{0, 8 * time.Hour, false}} {
		if got := steppedBack(c.passed, c.shown); got != c.want {
			t.Errorf("%v passed, the clock shows %v: %v", c.passed, c.shown, got)
		}
	}
}

// Ticks that were planned while the clock was an hour ahead are planned again.
//
// Fails when planner.replan keeps the items of the heap, or when waiting ticks still use times of
// the old clock.
func TestReplan(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(time.Minute),
		Run: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	e := s.registry.get("a").entry
	s.registry.setPhase(PhaseRunning)
	s.planner.started = true
	e.ticks.next = now.Add(time.Hour).UnixMicro()
	s.planner.plan(e, e.ticks.next)
	e.ticks.due = 1
	s.waiting.later(tick{s: e.settings.Load(), at: 1}, 2*time.Hour)
	s.planner.replan(now)
	if len(s.planner.heap) != 1 || time.UnixMicro(s.planner.heap[0].when).Sub(now) > time.Minute {
		t.Errorf("%+v", s.planner.heap)
	}
	if list, _ := s.waiting.due(time.Now().UnixMicro()+1, 2); len(list) != 1 || list[0].at != 1 {
		t.Errorf("tried now: %v", list)
	}
}
