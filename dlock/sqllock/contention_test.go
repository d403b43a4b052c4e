package sqllock_test

import (
	"flag"
	"testing"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/torture/crowd"
)

// contentions are those that every database has to stand.
var contentions = []struct{ slots, workers, attempts int }{{1, 16, 1000}, {5, 16, 1000}, {5, 5, 2800}, {16, 16, 2800}, {50, 16, 2800}}

// With -contend=5 there are 42,000 attempts with no more workers than slots.
var times = flag.Int("contend", 1, "how many times as many `attempts` the tests of contention make")

func contend(t *testing.T, open func() dlock.DistributedLock, slots, workers, attempts int) {
	t.Helper()
	crowd.Contend(t, open, slots, workers, attempts**times)
}
