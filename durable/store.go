package durable

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/lifecycle"
)

// A Store keeps schedules, runs and attempts in a database. Create one with SQLite, or with
// pgxdurable.New for Postgres. Its methods may be called from any goroutine, and return when their
// context ends. An error matches dlock.ErrSetup if the database answers but is not set up
// correctly: a table, a privilege or an option is missing.
type Store struct {
	store store.Store
	fault error // fault of the options, which every method returns

	hint   lifecycle.Hint
	closed atomic.Bool
}

// StoreOn returns a Store that uses an internal store, or a Store whose methods return fault. Only
// package pgxdurable calls it, because the type of the parameter is internal.
func StoreOn(s store.Store, fault error) *Store {
	if fault != nil {
		return &Store{fault: fault}
	}
	return &Store{store: s}
}

// ready returns why a call must not be made, or nil. The error does not have the package name as a
// prefix yet.
func (s *Store) ready(ctx context.Context) error {
	switch {
	case s == nil || s.store == nil && s.fault == nil:
		return errNoStore
	case s.fault != nil:
		return s.fault
	case s.closed.Load():
		return dlock.ErrClosed
	case ctx == nil:
		return errNilContext
	}
	return nil
}

// Migrate creates or upgrades the tables. Any number of hosts may call it, at the same time and at
// every start. If nothing is missing, the database user needs no privilege to create anything.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return named(err)
	}
	return named(s.store.Migrate(ctx))
}

// Verify returns nil if the tables have the schema that this version needs. Otherwise, it returns
// an error that matches dlock.ErrSetup. Call Verify at startup if another tool applies the schema.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return named(err)
	}
	return named(s.store.Verify(ctx))
}

// Schema returns the statements that Migrate executes on an empty database, for users who apply
// their own migrations. They include the statements that record applied migrations. Each migration
// begins with a comment that contains its number.
func (s *Store) Schema() ([]string, error) {
	if err := s.ready(context.Background()); err != nil {
		return nil, named(err)
	}
	statements, err := s.store.Schema()
	return statements, named(err)
}

// Close closes the connections that the store has opened for its workers, but not the pool that it
// was made from. Call it when Run of all its workers has returned. Later calls fail with an error
// that matches dlock.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.closed.Swap(true) {
		return nil
	}
	if c, ok := s.store.(interface{ Close() }); ok {
		c.Close()
	}
	return nil
}

// ErrNoRun is matched by the error for a run that does not exist, or was deleted.
var ErrNoRun = errors.New("there is no such run")
