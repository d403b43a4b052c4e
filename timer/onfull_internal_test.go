package timer

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A tick that has waited for a run to end and the next one may both come to the line of MaxRuns:
// the later one stays there, and the earlier is not forgotten.
//
// Fails when enterOrWait lets one tick replace the other.
func TestEarlierTickLeavesTheLine(t *testing.T) {
	s, err := New(Config{MaxRuns: 1}, Timer{Name: "b", Run: nothing},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), OnFull: FullWait, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	g := s.registry
	g.setPhase(PhaseRunning)
	set := g.get("a")
	if why := g.enter(g.get("b"), 1); why != "" {
		t.Fatal(why)
	}
	for _, c := range []struct {
		at, earlier int64
		waits       bool
	}{{2, 0, true}, {1, 0, false}, {3, 2, true}} {
		why, waits, earlier := g.enterOrWait(set, 1, dueTick{at: c.at})
		if waits != c.waits || !waits && why != ReasonMaxRuns || earlier.at != c.earlier {
			t.Errorf("tick %d: %q, waits %v, in place of %d", c.at, why, waits, earlier.at)
		}
	}
	if left := g.closeLine(); len(left) != 1 || left[0].tick.at != 3 {
		t.Errorf("%+v", left)
	}
}
