package caslock_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/caslock/caslocktest"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
)

// features are the features of a store whose backend writes several documents in one step.
var features = dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
	PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true, Enumeration: true}

// The hosts know the server's clock exactly, so the suite allows no slack.
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

// The hosts derive the server's time from answers in whole units, and its members' clocks differ.
// So a lease may last longer.
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

// A server that writes one document per step refuses shared limits, and the store reports this.
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
