package memory_test

import (
	"testing"

	"github.com/tickslot/tickslot/durable/internal/memory"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
)

// What the tests of package durable run on does what the databases do.
func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{Virtual: true, New: func(testing.TB) func() store.Store {
		s := memory.New()
		return func() store.Store { return s }
	}})
}
