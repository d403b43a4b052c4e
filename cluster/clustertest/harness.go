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
	// New returns fresh, empty registries. Run calls it for every test, concurrently unless Virtual
	// is set. Use t.Cleanup to close what New opens.
	New func(t testing.TB) Registries

	// Virtual runs every test in a testing/synctest bubble. Set it for a store that uses time.Now
	// as its clock and does no I/O. Without it, tests run in parallel. Default false.
	Virtual bool

	// Slack is the tolerance for times, for a store whose clock is coarse or runs at a different
	// speed than this process's clock. Default 50 ms; 0 if Virtual is set.
	Slack time.Duration
}

// Registries are the two registries that one test uses.
type Registries struct {
	// Store is the registry under test. Its calls may be concurrent.
	Store cluster.Store

	// Other is a second registry on the same server, with another prefix or other tables.
	Other cluster.Store

	// RoundTrips returns the number of round trips Store has made so far. Default nil: round trips
	// are not tested.
	RoundTrips func() int64

	// Hang makes the server of Store accept calls without answering them, until the returned
	// function is called. Default nil: calls that hang are not tested.
	Hang func() (resume func())
}

// Run tests that a store does what cluster.Store says. It runs one subtest per promise.
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

// try tests one promise on fresh registries. The returned check holds the findings.
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

// promises lists all promises in the order in which they are tested.
var promises = join(hosts, leases, histories, records, sweeping, texts, calls, crowds)

func join(groups ...[]promise) []promise {
	var all []promise
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
