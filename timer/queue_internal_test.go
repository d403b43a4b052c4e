package timer

import "testing"

// The queue does not keep timers of which no tick waits, however long the tick of another timer
// waits.
//
// Fails when a timer that is served from one of the two lists stays in the other.
func TestQueueForgetsWhoWasServed(t *testing.T) {
	var l queue
	first := &entry{ticks: tickTimes{next: 1 << 40}, state: &state{}}
	l.enqueue(first, dueTick{at: 1})
	often := &entry{ticks: tickTimes{next: 1}, state: &state{}}
	for tick := range int64(10_000) {
		l.enqueue(often, dueTick{at: tick + 1})
		if e, served := l.soonest(); e != often || served.at != tick+1 {
			t.Fatalf("served %p, %+v", e, served)
		}
	}
	if len(l.byAge) > 200 || len(l.byNext) > 200 {
		t.Errorf("%d and %d are kept while one waits", len(l.byAge), len(l.byNext))
	}
	if e, served := l.oldest(); e != first || served.at != 1 {
		t.Errorf("the oldest is %p, %+v", e, served)
	}
	if e, _ := l.oldest(); e != nil || len(l.ticks) != 0 {
		t.Errorf("%d wait", len(l.ticks))
	}
}
