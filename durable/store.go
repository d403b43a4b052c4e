package durable

import (
	"context"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// A Store keeps schedules, runs and attempts in a database. Make one with Postgres or SQLite.
type Store struct {
	store store.Store
	fault error // of the options; every method returns it
}

// Migrate creates or upgrades the tables. Any number of hosts may call it, at the same time and at
// every start; once everything is there, also as a user who may not create anything.
func (s *Store) Migrate(ctx context.Context) error {
	if s.fault != nil {
		return s.fault
	}
	return s.store.Migrate(ctx)
}
