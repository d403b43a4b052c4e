package timer

import (
	"context"
	"sync"
	"testing"
	"time"
)

// When the scheduling goroutine has to end while the user's code decides about something, what it has taken from the heap and not come to is there again,
// to be accounted for.
//
// Fails when fire does not put back what is left of theirs.
func TestNothingTakenIsForgotten(t *testing.T) {
	until := make(chan struct{})
	asked, end := 0, func() {}
	ends := BlackoutFunc(func(time.Time) bool { asked++; end(); return false })
	run := func(context.Context) error { return nil }
	s, err := New(Config{}, Timer{Name: "a", Run: run, Blackouts: []Blackout{ends}}, Timer{Name: "b", Run: run, Blackouts: []Blackout{ends}},
		Timer{Name: "c", Run: run, Blackouts: []Blackout{ends}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.entries {
		e.due = 1
		s.heap.push(tryLater(s.now(), e, dueTick{at: e.due, missed: true}))
	}
	asked, end = 0, sync.OnceFunc(func() { close(until) })
	s.fire(until)
	s.lock()
	defer s.unlock()
	if n := len(s.heap); asked == 0 || n != 2 {
		t.Errorf("%d are left of three, want two; their blackouts were asked %d times", n, asked)
	}
}
