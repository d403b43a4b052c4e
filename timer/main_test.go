package timer_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/proof/servertest"
)

// No goroutine is left after the tests. Tests in bubbles check that themselves.
func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }
