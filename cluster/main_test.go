package cluster_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine is left after the tests; for each test its bubble proves that already.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
