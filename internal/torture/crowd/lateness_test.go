package crowd

import (
	"testing"
	"testing/synctest"
	"time"
)

// Fails when a busy machine is taken for granted: a call that is a second over its bound passes
// although the machine was not late.
func TestCallOverItsBoundIsFound(t *testing.T) {
	t.Parallel()
	const bound = 300 * time.Millisecond
	for _, c := range []struct {
		over, late time.Duration
		want       bool
	}{
		{0, 0, true},
		{margin, 0, true},
		{time.Second, 0, false},
		{time.Second, 100 * time.Millisecond, false},
		{time.Second, time.Second, true},
	} {
		if got := inTime(bound+c.over, bound, c.late); got != c.want {
			t.Errorf("%v over, %v late: %v, want %v", c.over, c.late, got, c.want)
		}
	}
}

// Fails when the machine's lateness at another time excuses a call, or an idle machine is late.
func TestLatenessIsThatOfTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newLateness(), make(chan struct{})
		go l.probe(stop)
		began := time.Now()
		time.Sleep(time.Second) // virtual
		if late := l.since(began); late != 0 {
			t.Errorf("an idle machine is %v late", late)
		}
		close(stop) // nobody wakes the probe any more
		synctest.Wait()
		stalled := time.Now()
		time.Sleep(2 * time.Second)
		half := time.Now().Add(-time.Second)
		for from, want := range map[time.Time]time.Duration{began: 2 * time.Second, stalled: 2 * time.Second,
			half: time.Second} {
			if late := l.since(from); late < want-nap || late > want {
				t.Errorf("late by %v since %v, want %v", late, from.Sub(began), want)
			}
		}
		if late := l.since(time.Now()); late != 0 {
			t.Errorf("late by %v since now", late)
		}
	})
}
