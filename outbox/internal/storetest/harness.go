package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A Harness gives Run access to a store.
type Harness struct {
	// New returns a client of new, migrated tables. It is called for every test, concurrently
	// unless Virtual is set. Close resources in a t.Cleanup.
	New func(t testing.TB) store.Store

	// Begin begins an application's transaction in the database of a store from New.
	Begin func(t testing.TB, s store.Store) Transaction

	// Virtual runs every test in a testing/synctest bubble. It is for a store that does no I/O and
	// whose clock is time.Now. Otherwise tests run in parallel. Default false.
	Virtual bool

	// OneWriter says that a transaction that has written keeps other transactions from writing
	// until it ends. Default false.
	OneWriter bool

	// Only has the first words of the promises to test, for a store that is not a database. Default
	// nil: all.
	Only []string

	// Large is the size of the largest payload in the tests. Default 10 MB.
	Large int
}

// A Transaction is a transaction of an application.
type Transaction struct {
	store.Tx
	Commit, Rollback func() error
}

// Run tests that a store keeps the contract of package store, with one subtest per promise.
func Run(t *testing.T, h Harness) {
	for _, p := range promises {
		of, _, _ := strings.Cut(p.name, "/")
		if h.Only != nil && !slices.Contains(h.Only, of) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			if h.Virtual {
				synctest.Test(t, func(t *testing.T) { h.try(t, p) })
				return
			}
			t.Parallel()
			h.try(t, p)
		})
	}
}

func (h Harness) try(t *testing.T, p promise) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.show(&check{TB: t, Store: h.New(t), ctx: ctx, h: h})
}

// A promise is one test of the suite.
type promise struct {
	name string
	show func(*check)
}

// promises has all promises in the order of their tests.
var promises = join(setUp, appending, delivering, marking, failing, operating)

func join(groups ...[]promise) []promise {
	var all []promise
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
