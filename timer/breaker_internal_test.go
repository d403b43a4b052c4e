package timer

import (
	"errors"
	"testing"
)

// It opens with the third failure in a row, and closes with the third answer in a row. What happened before does not count.
//
// Fails when trips or mends is another number, or when a failure does not start the count of answers again.
func TestBreakerCountsInARow(t *testing.T) {
	var b breaker
	for i, step := range []struct {
		calls string // + answered, - failed
		open  bool
	}{
		{"--", false}, {"+", false}, {"--", false}, {"-", true}, {"-----", true},
		{"++", true}, {"-", true}, {"++", true}, {"+", false}, {"--", false}, {"-", true},
	} {
		for _, call := range step.calls {
			var err error
			if call == '-' {
				err = errors.New("no answer")
			}
			b.saw(err, false)
		}
		if b.open != step.open {
			t.Fatalf("step %d, %s: open %v, want %v", i, step.calls, b.open, step.open)
		}
	}
}
