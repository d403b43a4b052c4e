package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

// Fails when the machine's lateness at another time excuses a call, or when an idle machine seems
// late.
func TestLatenessIsThatOfTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stop := newLateness(10*time.Millisecond), make(chan struct{})
		go l.probe(stop)
		began := time.Now()
		time.Sleep(time.Second) // virtual time
		if late := l.Since(began); late != 0 {
			t.Errorf("an idle machine is %v late", late)
		}
		close(stop) // nothing wakes the probe any more
		synctest.Wait()
		stalled := time.Now()
		time.Sleep(2 * time.Second)
		half := time.Now().Add(-time.Second)
		for from, want := range map[time.Time]time.Duration{began: 2 * time.Second, stalled: 2 * time.Second,
			half: time.Second} {
			if late := l.Since(from); late < want-nap || late > want {
				t.Errorf("late by %v since %v, want %v", late, from.Sub(began), want)
			}
		}
		if late := l.Since(time.Now()); late != 0 {
			t.Errorf("late by %v since now", late)
		}
	})
}
