package timer

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// Hosts and timers whose names differ only by a number are spread over the whole bound, for any
// bound.
//
// Fails when hashed does not mix the bits of FNV: web-1 to web-9 would then fall into a tenth of a
// day.
func TestSpreadOfSimilarNames(t *testing.T) {
	for _, bound := range []time.Duration{time.Second, time.Minute, 10 * time.Minute, time.Hour, 12 * time.Hour,
		24 * time.Hour} {
		var hosts, timers, nine [10]int
		for i := range 300 {
			s := &settings{timer: Timer{Name: "reload", Delay: Delay{ByHost: bound}}}
			d := s.spread(dlock.Holder{Host: fmt.Sprint("web-", i+1)})
			hosts[d*10/bound]++
			if i < 9 {
				nine[d*10/bound]++
			}
			s = &settings{timer: Timer{Name: fmt.Sprint("job-", i), Delay: Delay{ByTimer: bound}}}
			timers[s.spread(dlock.Holder{})*10/bound]++
		}
		used := 0
		for i := range 10 {
			if hosts[i] < 12 || hosts[i] > 52 || timers[i] < 12 || timers[i] > 52 { // expected 30 ± 5
				t.Errorf("%v: hosts %v, timers %v", bound, hosts, timers)
			}
			if nine[i] > 0 {
				used++
			}
		}
		if used < 4 {
			t.Errorf("%v: nine hosts are spread over %d tenths of it: %v", bound, used, nine)
		}
	}
}
