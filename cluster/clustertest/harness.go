package clustertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

// A Harness tells Run how to reach a store.
type Harness struct {
	// New returns fresh, empty registries. It is called for every test, concurrently unless Virtual
	// is set; close what needs closing in a t.Cleanup.
	New func(t testing.TB) Registries

	// Virtual runs every test in a testing/synctest bubble, for a store whose clock is time.Now and
	// that does no I/O. Otherwise tests run in parallel. Default false.
	Virtual bool

	// Slack is how much times may be off, because the store's clock is coarse or runs at another
	// speed than this process's. Default 50 ms; 0 if Virtual is set.
	Slack time.Duration
}

// Registries are two registries, for one test.
type Registries struct {
	// Store is the registry that is tested. Its calls may be concurrent.
	Store cluster.Store

	// Other has another prefix, or other tables, on the same server.
	Other cluster.Store

	// RoundTrips counts the round trips of Store on the wire. Default nil: they are not tested.
	RoundTrips func() int64

	// Hang makes the server of Store accept calls and answer none, until the returned function is
	// called. Default nil: calls that hang are not tested.
	Hang func() (resume func())
}

// Run tests that a store does what cluster.Store says, with one subtest per promise.
func Run(t *testing.T, h Harness) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			var c *check
			if h.Virtual {
				synctest.Test(t, func(t *testing.T) { c = h.try(t, p) })
			} else {
				t.Parallel()
				c = h.try(t, p)
			}
			for _, broken := range c.broken {
				t.Error(broken)
			}
			if c.skipped != "" && !t.Failed() {
				t.Skip(c.skipped)
			}
		})
	}
}

// try tests one promise of a store, and returns its findings.
func (h Harness) try(t testing.TB, p promise) (c *check) {
	if h.Slack == 0 && !h.Virtual {
		h.Slack = 50 * time.Millisecond
	}
	c = &check{slack: h.Slack, ctx: context.Background()}
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(giveUp); !ok {
				panic(e)
			}
		}
	}()
	c.Registries = h.New(t)
	if c.Store == nil || c.Other == nil {
		c.fatalf("Harness.New returned Registries without Store or Other")
	}
	p.show(c)
	return c
}

// A promise is one test of the suite.
type promise struct {
	name string
	show func(*check)
}

// promises are all promises, in the order in which they are tested.
var promises = join(hosts, leases, histories, records, sweeping, texts, calls, crowds)

func join(groups ...[]promise) []promise {
	var all []promise
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
