package timer

import (
	"errors"
	"testing"

	"github.com/tickslot/tickslot/internal/answers"
)

// If a store renews leases but grants none, the host notices that it is down, however many renewals
// happen between two acquires.
//
// Fails when a successful renewal offsets a failed acquire.
func TestRenewalsDoNotHideThatNothingIsGranted(t *testing.T) {
	var b breaker
	b.saw(nil, false, false)
	for range answers.OpenAfter {
		b.saw(errors.New("NOPERM"), false, false)
		for range 10 {
			b.saw(nil, false, true)
		}
	}
	if !b.Open() {
		t.Error("ticks still ask it")
	}
	for range closeAfter {
		b.saw(nil, false, false)
	}
	b.saw(errors.New("a time-out"), false, true)
	b.saw(nil, false, true)
	if b.Open() || b.err != nil {
		t.Errorf("a renewal that failed and was repeated: open %v, %v", b.Open(), b.err)
	}
}
