package answers_test

import (
	"testing"

	"github.com/tickslot/tickslot/internal/answers"
)

// Three failures in a row open a breaker, and as many answers in a row as its user says close it.
//
// Fails when failures or answers that are not in a row are counted together, or when a change is
// reported twice.
func TestBreaker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		closeAfter  int
		calls, want string // calls: + answered, - failed; want: O opened, C closed
	}{
		{1, "--+-----+--+---+", ".....O..C.....OC"},
		{3, "--+---+-++-+++++", ".....O.......C.."},
	} {
		var b answers.Breaker
		got := ""
		for _, call := range c.calls {
			switch opened, closed := b.Count(call == '+', c.closeAfter); {
			case opened:
				got += "O"
			case closed:
				got += "C"
			default:
				got += "."
			}
		}
		if got != c.want || b.Open() {
			t.Errorf("closing after %d: %s, want %s; open: %v", c.closeAfter, got, c.want, b.Open())
		}
	}
}
