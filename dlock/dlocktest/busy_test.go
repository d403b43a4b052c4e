package dlocktest

import (
	"context"
	"math/rand/v2"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// busy is a correct store on a machine that pauses now and then, before the store acts and before
// its answer arrives.
type busy struct {
	*memlock.Store
	longest time.Duration
}

func (b busy) standsStill() {
	if rand.N(3) == 0 {
		time.Sleep(rand.N(b.longest).Truncate(time.Millisecond))
	}
}

func (b busy) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	b.standsStill()
	defer b.standsStill()
	return b.Store.TryAcquire(ctx, req)
}

func (b busy) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	b.standsStill()
	defer b.standsStill()
	return b.Store.Extend(ctx, ttl, grants...)
}

func (b busy) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	b.standsStill()
	defer b.standsStill()
	return b.Store.Release(ctx, grants...)
}

// A machine that pauses for longer than a brief lease causes no findings.
//
// Fails when a check relies on a call being made before such a lease ends.
func TestABusyMachineBreaksNoPromise(t *testing.T) {
	many := regexp.MustCompile(`hammer|crosswise|random`) // these checks limit the time of their own calls
	rounds := testkit.Rounds(t, 10, 50)
	h := brokenHarness("", nil)
	h.Virtual = false // calls take real time
	h.New = func(testing.TB) Namespace {
		store := busy{memlock.New(), 3 * h.TTL}
		return Namespace{Open: func() driver.Store { return store }}
	}
	for _, p := range promises {
		if many.MatchString(p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			for range rounds {
				var c *check
				synctest.Test(t, func(t *testing.T) { c = h.try(t, p) })
				for _, broken := range c.broken {
					t.Fatal(broken)
				}
			}
		})
	}
}
