package leader_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine is left after the tests. The tests in bubbles prove it for themselves.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
