package storetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// A Harness gives Run access to a store.
type Harness struct {
	// New creates and migrates new tables. Each call of open returns another client of them. New is
	// called for every test, concurrently unless Virtual is set. Close resources in a t.Cleanup.
	New func(t testing.TB) (open func() store.Store)

	// Virtual runs every test in a testing/synctest bubble. It is for a store that does no I/O and
	// whose clock is time.Now. Otherwise tests run in parallel. Default false.
	Virtual bool

	// Rounds is how often concurrent tests repeat their work. Default 1.
	Rounds int

	// NotifiesOnlyItself says that Notify of one client does not wake Listen of another client.
	// Default false.
	NotifiesOnlyItself bool

	// NoNotifications says that Notify wakes no Listen, for example because of a proxy in between.
	// Default false.
	NoNotifications bool

	// Begin begins an application's transaction in the database of a store from New. Default nil:
	// transactions are not tested.
	Begin func(t testing.TB, s store.Store) Transaction

	// SeenAhead moves the last registration of all schedules into the future, as if the database's
	// clock had been ahead by that much at the time.
	SeenAhead func(t testing.TB, s store.Store, by time.Duration)

	// Refuse makes the database refuse to insert runs of a handler. Default nil: refusals are not
	// tested.
	Refuse func(t testing.TB, s store.Store, handler string)
}

// A Transaction is a transaction of an application.
type Transaction struct {
	store.Tx
	Commit, Rollback func() error
}

// Run tests that a store keeps the contract of package store, with one subtest per promise.
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

// promises has all promises in the order of their tests.
var promises = join(setUp, registering, planning, planningAtOnce, claiming, limits, partitions, rates, spread,
	limitsAtOnce, renewing, finishing, reclaiming, inserting, steering, sweeping, reading, texts)

func join(groups ...[]promise) []promise {
	var all []promise
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
