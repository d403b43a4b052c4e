package storetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// A Harness tells Run how to reach a store.
type Harness struct {
	// New returns fresh, migrated tables: each call of open is one more client of them. It is
	// called for every test, concurrently unless Virtual is set; close what needs closing in a
	// t.Cleanup.
	New func(t testing.TB) (open func() store.Store)

	// Virtual runs every test in a testing/synctest bubble, for a store whose clock is time.Now and
	// that does no I/O. Otherwise tests run in parallel. Default false.
	Virtual bool

	// Rounds is how often what is concurrent is repeated. Default 1.
	Rounds int

	// NotifiesOnlyItself says that Notify of one client wakes no Listen of another. Default false.
	NotifiesOnlyItself bool

	// NoNotifications says that no Listen is woken, because of what stands between it and the
	// database. Default false.
	NoNotifications bool

	// Begin begins a transaction of an application in the database of a store that New has made.
	// Default nil: those are not tested.
	Begin func(t testing.TB, s store.Store) Transaction

	// SeenAhead has the database find that all schedules were seen so much later than they were, as
	// if its clock had been ahead then.
	SeenAhead func(t testing.TB, s store.Store, by time.Duration)

	// Refuse has the database refuse every run of a handler that is inserted from now on. Default
	// nil: that is not tested.
	Refuse func(t testing.TB, s store.Store, handler string)
}

// A Transaction is one of an application.
type Transaction struct {
	store.Tx
	Commit, Rollback func() error
}

// Run tests that a store does what package store says, with one subtest per promise.
func Run(t *testing.T, h Harness) {
	for _, p := range promises {
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
	h.Rounds = max(1, h.Rounds)
	open := h.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.show(&check{TB: t, Store: open(), ctx: ctx, h: h, open: open})
}

// A promise is one test of the suite.
type promise struct {
	name string
	show func(*check)
}

// promises are all of them, in the order in which they are tested.
var promises = join(setUp, registering, planning, planningAtOnce, claiming, limits, partitions, rates, spread,
	limitsAtOnce, renewing, finishing, reclaiming, inserting, steering, sweeping, reading, texts)

func join(groups ...[]promise) []promise {
	var all []promise
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
