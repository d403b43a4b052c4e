package timer

import (
	"math"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
)

// A timer that is due every millisecond has had 2^31 ticks within a month. Where none was a
// success, that is told also afterwards.
//
// Fails when came, unasked or settled counts on beyond the largest number that there is.
func TestSilenceIsToldHoweverLong(t *testing.T) {
	tm := Timer{Name: "a", Schedule: schedule.Every(time.Millisecond), AlarmAfter: 5}
	for name, c := range map[string]struct {
		before  silence
		happens func(q *silence)
	}{
		"came":    {silence{ticks: math.MaxInt32}, (*silence).came},
		"settled": {silence{ticks: math.MaxInt32 - 1, open: 2}, func(q *silence) { q.settled(true) }},
		"unasked": {silence{ticks: 1, open: math.MaxInt32}, func(q *silence) { q.unasked(); q.settled(true) }},
	} {
		q := c.before
		c.happens(&q)
		if q.says(tm, OutcomeFailed, dlock.Holder{}) == nil {
			t.Errorf("%s: %d ticks without a success, and nothing is said", name, q.ticks)
		}
	}
}
