package timer

import (
	"math"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
)

// The number of ticks without a success does not overflow. A timer that is due every millisecond
// has 2^31 ticks in a month.
//
// Fails when deadman.count, postpone or countPostponed exceeds the largest number.
func TestTicksWithoutSuccessSaturate(t *testing.T) {
	tm := Timer{Name: "a", Schedule: schedule.Every(time.Millisecond), AlarmAfter: 5}
	for name, c := range map[string]struct {
		before  deadman
		happens func(q *deadman)
	}{
		"count":   {deadman{ticks: math.MaxInt32}, (*deadman).count},
		"settled": {deadman{ticks: math.MaxInt32 - 1, postponed: 2}, func(q *deadman) { q.countPostponed(true) }},
		"putOff": {deadman{ticks: 1, counted: true, postponed: math.MaxInt16},
			func(q *deadman) { q.postpone(); q.countPostponed(true) }},
	} {
		q := c.before
		c.happens(&q)
		if q.check(tm, OutcomeFailed, dlock.Holder{}) == nil {
			t.Errorf("%s: %d ticks without a success, and no error", name, q.ticks)
		}
	}
}
