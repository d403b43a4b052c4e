package timer

import "testing"

// The queue does not keep timers of which no tick waits, however long the tick of another timer
// waits.
//
// Fails when a timer that is served from one of the two lists stays in the other.
func TestQueueForgetsWhoWasServed(t *testing.T) {
	var l queue
	first := &settings{entry: &entry{ticks: tickTimes{next: 1 << 40}}}
	l.enqueue(queuedTick{tick: tick{s: first, at: 1}})
	often := &settings{entry: &entry{ticks: tickTimes{next: 1}}}
	for n := range int64(10_000) {
		l.enqueue(queuedTick{tick: tick{s: often, at: n + 1}})
		if served := l.soonest(); served.s != often || served.at != n+1 {
			t.Fatalf("served %+v", served)
		}
	}
	if len(l.byAge) > 200 || len(l.byNext) > 200 {
		t.Errorf("%d and %d are kept while one waits", len(l.byAge), len(l.byNext))
	}
	if served := l.oldest(); served.s != first || served.at != 1 {
		t.Errorf("the oldest is %+v", served)
	}
	if l.oldest().s != nil || len(l.ticks) != 0 {
		t.Errorf("%d wait", len(l.ticks))
	}
}
