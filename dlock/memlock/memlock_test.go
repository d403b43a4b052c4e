package memlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

func TestConformance(t *testing.T) {
	dlocktest.Run(t, dlocktest.Harness{
		Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true,
			Enumeration: true},
		Virtual: true,
		New: func(testing.TB) dlocktest.Namespace {
			store, ahead := memlock.New(), time.Duration(0)
			store.Clock = func() time.Time { return time.Now().Add(ahead) }
			return dlocktest.Namespace{
				Open:     func() driver.Store { return store },
				LoseData: func() { *store = memlock.Store{} },
				StepClock: func(by time.Duration) time.Duration {
					ahead += by
					return ahead
				},
			}
		},
	})
}

// The same promises hold on the real clock. The test also shows that the suite works without
// virtual time.
func TestConformanceInRealTime(t *testing.T) {
	testkit.SkipShort(t)
	dlocktest.Run(t, dlocktest.Harness{
		Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true,
			Enumeration: true},
		TTL: 100 * time.Millisecond,
		New: func(testing.TB) dlocktest.Namespace {
			store := memlock.New()
			return dlocktest.Namespace{Open: func() driver.Store { return store }}
		},
	})
}

// Names that are not used for a long time are forgotten. Otherwise the store would grow with every
// name ever used.
func TestIdleNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		ctx := context.Background()
		start := time.Now()
		acquire := func(name, token string, tick *driver.Tick) driver.Grant {
			t.Helper()
			g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 2, Token: token, TTL: time.Minute,
				Tick: tick})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		declared := func(name, token string) int { return acquire(name, token, nil).Info.DeclaredSlots }

		tick := &driver.Tick{At: start.Add(-time.Hour), Max: 1}
		old := acquire("idle", "a", &driver.Tick{At: start, Max: 1})
		acquire("in use", "a", &driver.Tick{At: start, Max: 1})
		for day := range 41 {
			time.Sleep(24 * time.Hour)
			if got := declared("in use", fmt.Sprint("day-", day)); got != 2 {
				t.Fatalf("day %d: a name in use was forgotten: Info.DeclaredSlots %d", day, got)
			}
		}
		// The store refuses a tick that is older than the last claimed one, unless it forgot the
		// name.
		if _, err := store.TryAcquire(ctx, driver.Request{Name: "in use", Slots: 2, Token: "b", TTL: time.Minute,
			Tick: tick}); err == nil {
			t.Error("the tick of a name in use was forgotten")
		}
		again := acquire("idle", "b", tick)
		if again.Info.DeclaredSlots != 0 {
			t.Errorf("a name idle for 41 days was not forgotten: Info.DeclaredSlots %d", again.Info.DeclaredSlots)
		}
		if again.Fence <= old.Fence {
			t.Errorf("fence %d after %d: must grow although the name was forgotten", again.Fence, old.Fence)
		}
	})
}
