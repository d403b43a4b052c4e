package timer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Every is a grid that depends on the period and the name only: hosts that start at any moment agree.
func TestEveryIsAGridCommonToTheFleet(t *testing.T) {
	for _, period := range []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 90 * time.Second, time.Hour, 36 * time.Hour} {
		s := Interval{period: period}.of("orders")
		if s.shift < 0 || s.shift >= min(period, time.Minute) {
			t.Errorf("%v: shifted by %v", period, s.shift)
		}
		start := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
		tick := s.Next(start)
		for range 1000 {
			next := s.Next(tick)
			if next.Sub(tick) != period {
				t.Fatalf("%v: %v after %v", period, next, tick)
			}
			within := tick.Add(rand.N(period)) // whenever a host asks within the period, it gets the same answer
			if got := s.Next(within); !got.Equal(next) {
				t.Fatalf("%v: Next(%v) = %v, want %v", period, within, got, next)
			}
			tick = next
		}
		before := time.Date(1950, 1, 1, 0, 0, 0, 1, time.UTC)
		if d := s.Next(before).Sub(before); d <= 0 || d > period {
			t.Errorf("%v: before the epoch Next is %v later", period, d)
		}
	}
}

// A hundred timers with the same period are not all due at the same instant.
func TestEveryIsSpreadByName(t *testing.T) {
	seconds := map[int]int{}
	for i := range 600 {
		s := Interval{period: time.Hour}.of("timer-" + strconv.Itoa(i))
		seconds[int(s.shift/time.Second)]++
	}
	if len(seconds) < 55 {
		t.Errorf("600 timers fall on %d seconds of the minute", len(seconds))
	}
}

// After a long sleep the last tick that is due is tried and the others are counted, by arithmetic or one by one.
//
// Fails when skip forgets the ticks between.
func TestAdvanceCountsMissedTicks(t *testing.T) {
	grid := Interval{period: time.Second}.of("x")
	for name, s := range map[string]Schedule{"every": grid, "generic": generic{grid}} {
		tick := ceilMicro(grid.Next(time.Unix(1_700_000_000, 0)))
		for _, late := range []time.Duration{0, time.Millisecond, 999 * time.Millisecond, time.Second, 3500 * time.Millisecond, 1000 * time.Second} {
			last, next, missed, err := advance(s, tick, tick.Add(late))
			want := uint64(late / time.Second)
			if err != nil || missed != want || !last.Equal(tick.Add(time.Duration(want)*time.Second)) || !next.Equal(last.Add(time.Second)) {
				t.Errorf("%s, %v late: last %v, next %v, missed %d, %v; want missed %d", name, late, last.Sub(tick), next.Sub(tick), missed, err, want)
			}
		}
	}
}

type generic struct{ s Schedule }

func (g generic) Next(t time.Time) time.Time { return g.s.Next(t) }

// A schedule that breaks at run time stops its timer and nothing else.
func TestAdvanceReportsABrokenSchedule(t *testing.T) {
	now := time.Now()
	if _, _, _, err := advance(broken{}, now, now); err == nil {
		t.Error("a schedule that does not move on was believed")
	}
}

type broken struct{}

func (broken) Next(t time.Time) time.Time { return t }

// Instants are rounded up to the microsecond, so that the next one after them is later.
func TestCeilMicro(t *testing.T) {
	for _, nanos := range []int64{0, 1, 999, 1000, 1001, 999_999_999} {
		got := ceilMicro(time.Unix(5, nanos))
		if got.Nanosecond()%1000 != 0 || got.Before(time.Unix(5, nanos)) || got.Sub(time.Unix(5, nanos)) > 999 {
			t.Errorf("ceilMicro(%d) = %d", nanos, got.Nanosecond())
		}
	}
}

// The heap gives items back in the order of their instants, whatever is pushed, popped and removed.
func TestHeapKeepsOrder(t *testing.T) {
	for range 200 {
		var h tickHeap
		var want []int64
		drop := &entry{}
		for range rand.IntN(300) {
			when := rand.Int64N(100)
			if rand.IntN(10) == 0 {
				h.push(item{when: when, e: drop, again: &dueTick{at: when}})
				continue
			}
			h.push(item{when: when, e: &entry{}})
			want = append(want, when)
			if rand.IntN(3) == 0 {
				// Pop and push back: what Next does.
				it := h.pop()
				if i := slices.Index(want, it.when); i >= 0 && it.e != drop {
					want[i] += 10
					it.when += 10
				}
				h.push(it)
			}
		}
		h.removeAll(drop)
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

// So many ticks are missed that they are not worth counting one by one: the next one is later than now all the same.
//
// Fails when advance goes on from the last tick that it counted.
func TestAdvanceIsBounded(t *testing.T) {
	grid := Interval{period: time.Millisecond}.of("x")
	tick := ceilMicro(grid.Next(time.Unix(1_700_000_000, 0)))
	now := tick.Add(time.Hour)
	if _, next, missed, err := advance(generic{grid}, tick, now); err != nil || missed != maxMissed || !next.After(now) {
		t.Errorf("missed %d, next %v after now, %v", missed, next.Sub(now), err)
	}
}

// The loop never sleeps for long, whatever comes next: a step of the wall clock must not delay a tick by more. And Remove
// leaves nothing behind.
//
// Fails when fire does not look at maxSleep, when it polls, or when Remove leaves the tick in the heap.
func TestLoopNeverSleepsForLong(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: Every(1000 * time.Hour), Run: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.heap) != 1 {
		t.Errorf("%d items", len(s.heap))
	}
	if d := s.fire(nil); d != maxSleep { // nor for less: it would be busy with waiting
		t.Errorf("it sleeps for %v", d)
	}
	if err := s.Remove(t.Context(), "a"); err != nil || len(s.heap) != 0 || len(s.parting) != 0 {
		t.Errorf("%v, %d items left", err, len(s.heap))
	}
	if d := s.fire(nil); d != maxSleep {
		t.Errorf("without a tick it sleeps for %v", d)
	}
}

// A wall clock that was set back is noticed; sleep, a clock that was set forward and one that is slewed are not taken for it.
func TestSteppedBack(t *testing.T) {
	for _, c := range []struct {
		passed, shown time.Duration
		want          bool
	}{{10 * time.Second, 10 * time.Second, false}, {10 * time.Second, -time.Hour, true}, {10 * time.Second, 8 * time.Second, true},
		{10 * time.Second, 9500 * time.Millisecond, false}, {10 * time.Second, time.Hour, false}, {0, 8 * time.Hour, false}} {
		if got := steppedBack(c.passed, c.shown); got != c.want {
			t.Errorf("%v passed, the clock shows %v: %v", c.passed, c.shown, got)
		}
	}
}

// What was planned by a clock that was an hour ahead is planned again.
//
// Fails when replan keeps the items of the heap, or when those that wait go on waiting by the old clock.
func TestReplan(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: Every(time.Minute), Run: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	e := s.entries["a"]
	s.phase = running
	e.next = now.Add(time.Hour).UnixMicro()
	s.heap.push(item{when: e.next, e: e})
	s.heap.push(item{when: now.Add(2 * time.Hour).UnixMicro(), again: &dueTick{at: 1}, e: e})
	s.replan(now)
	if len(s.heap) != 2 || time.UnixMicro(s.heap[1].when).Sub(now) > time.Minute || s.heap[1].again != nil || s.heap[0].again.at != 1 ||
		s.heap[0].when != now.UnixMicro() {
		t.Errorf("%+v", s.heap)
	}
}
