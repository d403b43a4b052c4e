package dlock_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The tests leave no goroutine behind. For tests in a bubble, the bubble already checks this.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
