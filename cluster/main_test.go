package cluster_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine is left after the tests; the bubbles prove it for each by themselves.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
