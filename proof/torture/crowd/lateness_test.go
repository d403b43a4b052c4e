package crowd

import (
	"testing"
	"time"
)

// Fails when every machine counts as busy: a call that is a second over its bound passes although
// the machine was not late.
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
