package durable_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/proof/servertest"
)

// TestMain checks that no goroutine is left after all tests. Bubbles check that for each test.
func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }
