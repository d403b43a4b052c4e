package caslock_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/caslock/caslocktest"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
)

// features are what a store can do on a backend that writes several documents in one step.
var features = dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
	PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true, Enumeration: true}

// Hosts see the server's clock itself, and nothing is allowed to last longer than it has to.
func TestConformance(t *testing.T) {
	dlocktest.Run(t, dlocktest.Harness{
		Features: features,
		Virtual:  true,
		New: func(testing.TB) dlocktest.Namespace {
			server := new(caslocktest.Server)
			return dlocktest.Namespace{
				Open:      func() driver.Store { return caslock.New(server.Client(0)) },
				LoseData:  server.Clear,
				StepClock: server.Step,
			}
		},
	})
}

// Hosts know the clock of a server from times in whole units, and its members' clocks differ, so a
// lease may last longer.
func TestConformanceWithACoarseClock(t *testing.T) {
	const unit, skew = 20 * time.Millisecond, 5 * time.Millisecond
	for _, only := range []string{"mutex", "extend", "expiry", "token", "fence", "previous_expired", "delay/counts",
		"rate/says", "control/a pause"} {
		dlocktest.Run(t, dlocktest.Harness{
			Features: features,
			Only:     only,
			Virtual:  true,
			TTL:      time.Second,
			Slack:    unit + skew + 80*time.Millisecond, // after a minute the drift adds 60 ms
			New: func(testing.TB) dlocktest.Namespace {
				server := &caslocktest.Server{CallDelay: 100 * time.Microsecond, ClockInterval: unit}
				return dlocktest.Namespace{Open: func() driver.Store { return caslock.New(server.Client(skew)) }}
			},
		})
	}
}

// A server that writes one document in a step takes no shared limits, and says so.
func TestConformanceOfSingleDocuments(t *testing.T) {
	single := features
	single.Shared, single.Rate = false, false
	dlocktest.Run(t, dlocktest.Harness{
		Features: single,
		Only:     "shared/",
		Virtual:  true,
		New: func(testing.TB) dlocktest.Namespace {
			server := &caslocktest.Server{Limits: caslock.Limits{Bytes: 3 << 19, Together: 1}}
			return dlocktest.Namespace{Open: func() driver.Store { return caslock.New(server.Client(0)) }}
		},
	})
}
