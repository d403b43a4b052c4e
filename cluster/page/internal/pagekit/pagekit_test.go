package pagekit_test

import (
	"testing"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// Count(1, …) is not plural.
//
// Fails when Count forgets the singular.
func TestCount(t *testing.T) {
	t.Parallel()
	if one, two := pagekit.Count(1, "run"), pagekit.Count(int64(2), "run"); one != "1 run" || two != "2 runs" {
		t.Error(one, two)
	}
}
