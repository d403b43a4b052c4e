package memory_test

import (
	"testing"

	"github.com/tickslot/tickslot/outbox/internal/memory"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/outbox/internal/storetest"
)

// Messages have the same outcomes as on databases. The store only imitates transactions and
// contexts.
//
// Fails when this store, which tests in virtual time use, behaves differently from the databases.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Virtual: true,
		Only:    []string{"mark", "note begun", "failing", "messages", "delete", "sweep", "stats"},
		New:     func(testing.TB) store.Store { return memory.New() },
		Begin: func(_ testing.TB, s store.Store) storetest.Transaction {
			tx := s.(*memory.Store).Begin()
			return storetest.Transaction{Tx: tx, Commit: func() error { tx.Commit(); return nil },
				Rollback: func() error { tx.Rollback(); return nil }}
		},
	})
}
