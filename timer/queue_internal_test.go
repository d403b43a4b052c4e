package timer

import "testing"

// The queue drops timers whose ticks no longer wait, however long the tick of another timer waits.
//
// Fails when a timer that is served from one of the two lists remains in the other.
func TestQueueForgetsWhoWasServed(t *testing.T) {
	var q queue
	add := func(e *entry, at int64) *pending {
		e.pending = &pending{tick: tick{s: &settings{entry: e}, at: at}}
		q.add(e.pending)
		return e.pending
	}
	first := add(&entry{ticks: tickTimes{next: 1 << 40}}, 1)
	often := &entry{ticks: tickTimes{next: 1}}
	for n := range int64(10_000) {
		p := add(often, n+1)
		if served := q.soonest(); served != p {
			t.Fatalf("served %+v", served)
		}
		often.pending = nil
	}
	if len(q.byAge) > 200 || len(q.byNext) > 200 {
		t.Errorf("%d and %d are kept while one waits", len(q.byAge), len(q.byNext))
	}
	if served := q.oldest(); served != first {
		t.Errorf("the oldest is %+v", served)
	}
	if q.oldest() != nil || q.n != 0 {
		t.Errorf("%d wait", q.n)
	}
}
