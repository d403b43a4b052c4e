package timertest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/timertest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// The memory store keeps its part of the invariants, so a failure here is the timer's fault or the
// suite's.
func TestRun(t *testing.T) {
	t.Parallel()
	timertest.Run(t, timertest.Harness{
		New: func(testing.TB) timertest.Store {
			store := memlock.New()
			return timertest.Store{Open: func(testing.TB) dlock.DistributedLock { return store }}
		},
	})
}
