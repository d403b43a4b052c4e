package cluster_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine remains after the tests. For a single test, its bubble already proves that.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
