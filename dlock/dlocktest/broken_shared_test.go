package dlocktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// sharedMistakes are mistakes in how slots of several semaphores are taken together.
var sharedMistakes = []mistake{
	{"further semaphores are forgotten", []string{"shared/all in one step", "shared/hammer"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if err := req.Validate(); err != nil {
				return driver.Grant{}, err
			}
			req.Shared = nil
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"a refusal keeps what came before it", []string{"shared/all or nothing"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			for i := range req.Shared {
				part := req
				part.Shared = req.Shared[:i+1]
				part.Tick = nil
				part.Name = "part of " + req.Name[:min(len(req.Name), 200)]
				if _, err := m.Store.TryAcquire(ctx, part); reason(err) == driver.ReasonLimitFull && i > 0 {
					part.Shared = req.Shared[:i]
					_, _ = m.Store.TryAcquire(ctx, part)
				} else if err == nil {
					_, _ = m.Store.Release(ctx, append(sharedByToken(part), byToken(part))...)
				}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"a request that is repeated extends its own slot only", []string{"shared/token asked again"}, func(m *mutant) {
		var mu sync.Mutex
		seen := map[string]bool{}
		m.grant(func(g *driver.Grant) {
			mu.Lock()
			defer mu.Unlock()
			if seen[g.Token] && len(g.Shared) > 0 {
				_, _ = m.Store.Extend(context.Background(), time.Millisecond, g.Shared...)
			}
			seen[g.Token] = true
		})
	}},
	{"the size is part of the name", []string{"shared/hosts that disagree"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Validate() != nil {
				return m.Store.TryAcquire(ctx, req)
			}
			sized := req
			sized.Shared = slices.Clone(req.Shared)
			for i, l := range sized.Shared {
				sized.Shared[i].Name = fmt.Sprintf("%d %s", l.Slots, l.Name[:min(len(l.Name), 200)])
			}
			g, err := m.Store.TryAcquire(ctx, sized)
			for i := range g.Shared {
				g.Shared[i].Name = req.Shared[i].Name
			}
			return g, err
		}
	}},
	{"the limit's reason comes first", []string{"shared/its own reasons"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if reason(err) != driver.ReasonTickTaken || len(req.Shared) == 0 {
				return g, err
			}
			look := req
			look.Tick, look.Name = nil, "look"
			found, full := m.Store.TryAcquire(ctx, look)
			if full == nil {
				_, _ = m.Store.Release(ctx, all(found)...)
				return g, err
			}
			return g, full
		}
	}},
	{"a permit has another token", []string{"shared/all in one step"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) {
			for i := range g.Shared {
				g.Shared[i].Token = "another"
			}
		})
	}},
	{"every permit has slot 0", []string{"shared/hammer"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) {
			for i := range g.Shared {
				g.Shared[i].Slot = 0
			}
		})
	}},
}

// sharedByToken returns the known parts of a request's further grants after a lost reply.
func sharedByToken(req driver.Request) (list []driver.Grant) {
	for _, l := range req.Shared {
		list = append(list, driver.Grant{Name: l.Name, Slots: l.Slots, Slot: driver.AnySlot, Token: req.Token})
	}
	return list
}
