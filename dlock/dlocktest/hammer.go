package dlocktest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var hammering = []promise{
	{name: "hammer/N=1", show: func(c *check) { hammer(c, 1, 16) }},
	{name: "hammer/N=5", show: func(c *check) { hammer(c, 5, 16) }},
	{name: "hammer/N=16, never full", show: func(c *check) { hammer(c, 16, 16) }},
	{name: "hammer/mutex", show: func(c *check) { hammer(c, 0, 16) }},
	{name: "hammer/one token from two sides", show: hammerOneToken},
}

// hammer catches every gap between a read and a write: two holders of one slot, a fence that
// decreases, a ReasonFull although a slot is free.
func hammer(c *check, slots, workers int) {
	hosts := []*host{c.host(), c.host(), c.host(), c.host()}
	n := max(1, slots)
	holders := make([]atomic.Int32, n)
	fences := make([]atomic.Int64, n)
	var grants atomic.Int64
	rounds, deadline := 100, time.Now().Add(400*time.Millisecond)
	if c.h.Virtual {
		rounds = 300
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			h := hosts[w%len(hosts)]
			call := func(op func() ([]driver.Result, error)) {
				results, err := op()
				if err != nil || len(results) != 1 || results[0].Outcome != driver.GrantOK {
					c.errorf("the holder's call: %v, %v: must be ok", results, err)
				}
			}
			ctx, cancel := callContext()
			defer cancel()
			for round := range rounds {
				if round > 0 && !c.h.Virtual && time.Now().After(deadline) {
					return
				}
				a := h.try(c.request("x", slots))
				switch {
				case reason(a.err) == driver.ReasonFull && workers > n:
					runtime.Gosched()
					continue
				case a.err != nil:
					c.errorf("%d workers on %d slots: %v", workers, n, a.err)
					return
				}
				grants.Add(1)
				slot := min(max(a.grant.Slot, 0), n-1)
				if others := holders[slot].Add(1) - 1; others > 0 {
					c.errorf("slot %d has %d holders", slot, others+1)
				}
				if last := fences[slot].Swap(int64(a.grant.Fence)); c.h.Features.Fence && int64(a.grant.Fence) <= last {
					c.errorf("slot %d has fence %d after %d", slot, a.grant.Fence, last)
				}
				if rand.N(2) == 0 {
					call(func() ([]driver.Result, error) { return h.store.Extend(ctx, c.long, a.grant) })
				}
				for range rand.N(4) {
					runtime.Gosched()
				}
				holders[slot].Add(-1) // before the release, because the next holder may come right after it
				call(func() ([]driver.Result, error) { return h.store.Release(ctx, a.grant) })
			}
		})
	}
	wg.Wait()
	if grants.Load() == 0 {
		c.errorf("%d workers on %d slots, and not one grant", workers, n)
	}
	hosts[0].fillAny("x", slots) // every slot must be free again
}

// hammerOneToken catches a retry that becomes a second grant because it overtakes the first
// request.
func hammerOneToken(c *check) {
	hosts := []*host{c.host(), c.host(), c.host()}
	for round := range 15 {
		name := fmt.Sprintf("x%d", round)
		req := c.request(name, 4)
		if c.h.Features.AtomicTick {
			req.Tick = &driver.Tick{At: thisSecond(), Max: 2}
		}
		got := make([]attempt, len(hosts))
		var wg sync.WaitGroup
		for i, h := range hosts {
			wg.Go(func() { got[i] = h.try(req) })
		}
		wg.Wait()
		for _, a := range got {
			if a.err != nil || a.grant.Slot != got[0].grant.Slot || a.grant.Fence != got[0].grant.Fence {
				c.fatalf("one token from %d sides: slot %d fence %d, and slot %d fence %d, %v: must be the same grant",
					len(hosts), got[0].grant.Slot, got[0].grant.Fence, a.grant.Slot, a.grant.Fence, a.err)
			}
		}
		if req.Tick != nil {
			second := c.request(name, 4)
			second.Tick = req.Tick
			hosts[0].release(hosts[0].mustAcquire(second).grant)
			third := c.request(name, 4)
			third.Tick = req.Tick
			hosts[0].mustRefuse(third, driver.ReasonTickTaken)
		}
		if rest := hosts[0].fill(name, 4); len(rest) != 3 {
			c.errorf("one token from %d sides: %d of the other 3 slots are free", len(hosts), len(rest))
		}
	}
}
