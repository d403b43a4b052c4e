package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A mutant is a memlock with one mistake that a user's store could have.
type mutant struct {
	*memlock.Store
	acquire func(context.Context, driver.Request) (driver.Grant, error)
	extend  func(context.Context, time.Duration, []driver.Grant) ([]driver.Result, error)
	release func(context.Context, []driver.Grant) ([]driver.Result, error)
	list    func(context.Context, string, int) ([]driver.LeaseInfo, error)
	pages   func(context.Context, string, int) (driver.LeasePage, error)
	update  func(context.Context, string, driver.Update) error
	inspect func(context.Context, []string) ([]driver.ControlState, error)
	value   func(context.Context, string) (driver.ValueState, error)
	revoke  func(context.Context, string, int, driver.Fence, driver.Cause) error
}

func (m *mutant) Update(ctx context.Context, name string, change driver.Update) error {
	if m.update != nil {
		return m.update(ctx, name, change)
	}
	return m.Store.Update(ctx, name, change)
}

func (m *mutant) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	if m.inspect != nil {
		return m.inspect(ctx, names)
	}
	return m.Store.Inspect(ctx, names...)
}

func (m *mutant) Value(ctx context.Context, name string) (driver.ValueState, error) {
	if m.value != nil {
		return m.value(ctx, name)
	}
	return m.Store.Value(ctx, name)
}

func (m *mutant) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	if m.revoke != nil {
		return m.revoke(ctx, name, slot, fence, by)
	}
	return m.Store.Revoke(ctx, name, slot, fence, by)
}

func (m *mutant) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if m.acquire != nil {
		return m.acquire(ctx, req)
	}
	return m.Store.TryAcquire(ctx, req)
}

func (m *mutant) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if m.extend != nil {
		return m.extend(ctx, ttl, grants)
	}
	return m.Store.Extend(ctx, ttl, grants...)
}

func (m *mutant) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	if m.release != nil {
		return m.release(ctx, grants)
	}
	return m.Store.Release(ctx, grants...)
}

func (m *mutant) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	if m.list != nil {
		return m.list(ctx, name, slots)
	}
	return m.Store.List(ctx, name, slots)
}

func (m *mutant) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	if m.pages != nil {
		return m.pages(ctx, after, limit)
	}
	return m.Store.Enumerate(ctx, after, limit)
}

// owners remembers the token that holds each slot, for mutants that ignore tokens.
type owners struct {
	mu     sync.Mutex
	tokens map[string]string
}

func (o *owners) key(g driver.Grant) string {
	return fmt.Sprintf("%q %t %d", g.Name, g.Slots == 0, g.Slot)
}

func (o *owners) acquire(m *mutant) func(context.Context, driver.Request) (driver.Grant, error) {
	return func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if err == nil {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.tokens == nil {
				o.tokens = make(map[string]string)
			}
			o.tokens[o.key(g)] = g.Token
		}
		return g, err
	}
}

// forged returns the grants with the tokens of the slots' current holders.
func (o *owners) forged(grants []driver.Grant) []driver.Grant {
	o.mu.Lock()
	defer o.mu.Unlock()
	forged := slices.Clone(grants)
	for i, g := range grants {
		if token := o.tokens[o.key(g)]; token != "" {
			forged[i].Token = token
		}
	}
	return forged
}

func (m *mutant) grant(change func(*driver.Grant)) {
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if err == nil {
			change(&g)
		}
		return g, err
	}
}

func (m *mutant) refusal(change func(*driver.NotAcquiredError)) {
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
			change(no)
		}
		return g, err
	}
}

func (m *mutant) ttl(change func(time.Duration) time.Duration) {
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		if req.Validate() == nil {
			req.TTL = change(req.TTL)
		}
		return m.Store.TryAcquire(ctx, req)
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
		return m.Store.Extend(ctx, change(ttl), grants...)
	}
}

// rename makes the store use a changed name.
func (m *mutant) rename(change func(name string, slots int) string) {
	renamed := func(grants []driver.Grant) []driver.Grant {
		grants = slices.Clone(grants)
		for i, g := range grants {
			grants[i].Name = change(g.Name, g.Slots)
		}
		return grants
	}
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		name := req.Name
		if req.Validate() == nil {
			req.Name = change(name, req.Slots)
		}
		g, err := m.Store.TryAcquire(ctx, req)
		g.Name = name
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
			no.Name = name
		}
		return g, err
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
		return m.Store.Extend(ctx, ttl, renamed(grants)...)
	}
	m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
		return m.Store.Release(ctx, renamed(grants)...)
	}
	m.list = func(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
		list, err := m.Store.List(ctx, change(name, slots), slots)
		for i := range list {
			list[i].Name = name
		}
		return list, err
	}
}

// oneKind stores a mutex in the place of a semaphore with one slot.
func oneKind(m *mutant) {
	same := func(grants []driver.Grant) []driver.Grant {
		grants = slices.Clone(grants)
		for i := range grants {
			grants[i].Slots = max(1, grants[i].Slots)
		}
		return grants
	}
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		asked := req.Slots
		if asked == 0 {
			req.Slots = 1
		}
		g, err := m.Store.TryAcquire(ctx, req)
		g.Slots = asked
		return g, as(err, asked)
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
		return m.Store.Extend(ctx, ttl, same(grants)...)
	}
	m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
		return m.Store.Release(ctx, same(grants)...)
	}
}

// lookThenWrite has a gap between finding a free slot and taking it. It has no TTLs and no ticks.
type lookThenWrite struct {
	mu    sync.Mutex
	held  map[string]string
	fence driver.Fence
}

func (s *lookThenWrite) TryAcquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	for slot := range max(1, req.Slots) {
		key := fmt.Sprintf("%q %t %d", req.Name, req.Slots == 0, slot)
		s.mu.Lock()
		taken := s.held[key] != ""
		s.mu.Unlock()
		if taken {
			continue
		}
		for range rand.N(4) {
			runtime.Gosched()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held == nil {
			s.held = make(map[string]string)
		}
		s.held[key] = req.Token
		s.fence++
		return driver.Grant{Name: req.Name, Slots: req.Slots, Slot: slot, Token: req.Token, Fence: s.fence}, nil
	}
	return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonFull, Slots: req.Slots}
}

func (s *lookThenWrite) Extend(_ context.Context, _ time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return slices.Repeat([]driver.Result{{Outcome: driver.GrantOK}}, len(grants)), nil
}

func (s *lookThenWrite) Release(_ context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range grants {
		delete(s.held, fmt.Sprintf("%q %t %d", g.Name, g.Slots == 0, g.Slot))
	}
	return slices.Repeat([]driver.Result{{Outcome: driver.GrantOK}}, len(grants)), nil
}

func (s *lookThenWrite) List(context.Context, string, int) ([]driver.LeaseInfo, error) {
	return nil, nil
}
