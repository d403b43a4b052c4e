package durable

import "github.com/tickslot/tickslot/durable/internal/store"

// NewStore returns a Store for tests.
func NewStore(s store.Store) *Store { return &Store{store: s} }
