package timer

import (
	"errors"
	"testing"
)

// A decision has its own error, not the error of the decision that it replaces in the ring.
//
// Fails when history.set keeps the old error although the new decision has none.
func TestErrorsLeaveTheRingWithTheirTicks(t *testing.T) {
	var h history
	failed := errors.New("failed")
	for tick := range int64(3 * historyLen) {
		var err error
		if tick < historyLen {
			err = failed
		}
		h.add(decision{tick: tick}, err)
		if _, got := h.get(h.find(tick)); got != err {
			t.Errorf("tick %d: %v, want %v", tick, got, err)
		}
	}
}
