package timer_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/proof/servertest"
)

// No goroutine is left after the tests. The tests in bubbles prove it for themselves.
func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }
