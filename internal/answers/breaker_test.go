package answers_test

import (
	"testing"

	"github.com/tickslot/tickslot/internal/answers"
)

// Three consecutive failures open a breaker, and the requested number of consecutive answers closes
// it.
//
// Fails when failures or answers that are not consecutive are counted together, or when a change is
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
