package caslock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/caslock/caslocktest"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/timer"
)

// If a timer or limit has more slots than a document can hold, timer.New returns an error that says
// what to do. Other timers, including those without a limit, are accepted.
//
// Fails when timer.New does not ask the store, or when a wrapper hides the bound.
func TestTimerAsksForTooManySlots(t *testing.T) {
	server := &caslocktest.Server{Limits: caslock.Limits{Bytes: 1024 + 300*320, Together: 20}}
	store := caslock.New(server.Client(0))
	run := func(context.Context) error { return nil }
	for _, lock := range []timer.Config{{Store: store}, {Store: dlocktest.NewFaulty(store)}} {
		for _, c := range []struct{ concurrency, limit int }{
			{300, 300}, {timer.NoLimit, 0}, {301, 300}, {500, 300}, {1, 301}, {1, 500},
		} {
			config := lock
			if c.limit > 0 {
				config.Limits = []timer.Limit{{Name: "mail", Size: c.limit}}
			}
			_, err := timer.New(config, timer.Timer{Name: "a", MaxConcurrency: c.concurrency, MaxPerTick: 1, Run: run})
			if bad := c.concurrency > 300 && c.concurrency != timer.NoLimit || c.limit > 300; !bad {
				if err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), "bears 300 at once: use at most that") {
				t.Errorf("%+v: %v: must say what to do", c, err)
			}
		}
		local := timer.Timer{Name: "a", MaxConcurrency: 500, LocalOnly: true, Run: run}
		if _, err := timer.New(lock, local); err != nil {
			t.Errorf("a timer without the store: %v", err)
		}
	}
}
