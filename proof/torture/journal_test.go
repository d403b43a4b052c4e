package torture

import (
	"testing"
	"time"
)

var start = time.Now()

func stretch(slot int, fence int64, from, to int) Stretch {
	return Stretch{Timer: "a", Slot: slot, Fence: fence, Host: "h",
		First: start.Add(time.Duration(from) * time.Millisecond), Last: start.Add(time.Duration(to) * time.Millisecond)}
}

// The checker finds each kind of violation, and reports none if there is none.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name                  string
		stretches             []Stretch
		runs, over, same, reg int
	}{
		{"in order", []Stretch{stretch(0, 1, 0, 10), stretch(1, 2, 0, 10), stretch(0, 3, 10, 20)}, 3, 0, 0, 0},
		{"a gap in one run", []Stretch{stretch(0, 1, 0, 10), stretch(0, 1, 90, 100)}, 1, 0, 0, 0},
		{"over the limit", []Stretch{stretch(0, 1, 0, 10), stretch(1, 2, 2, 8), stretch(2, 3, 5, 6)}, 3, 1, 0, 0},
		{"two in one slot", []Stretch{stretch(0, 1, 0, 10), stretch(0, 2, 9, 20)}, 2, 0, 1, 0},
		{"fence falls", []Stretch{stretch(0, 2, 0, 10), stretch(0, 1, 11, 20)}, 2, 0, 0, 1},
	} {
		var j Journal
		for _, s := range c.stretches {
			j.Add(s)
		}
		v := j.Check(map[string]int{"a": 2})
		if v.Runs != c.runs || v.OverLimit != c.over || v.SameSlot != c.same || v.FenceRegressions != c.reg {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}
