package dlocktest

import (
	"context"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// clockMistakes are mistakes with instants that a store recorded while its clock was ahead.
var clockMistakes = []mistake{
	{"a lease lasts until the clock is where it was", []string{"clock/leases of a"}, func(m *mutant) {
		// A memlock extends no lease when its clock goes back, so this mutant's clock stands still.
		frozen, clock := time.Time{}, m.Store.Clock
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if now := clock(); now.After(frozen) {
				frozen = now
			}
			m.Store.Clock = func() time.Time { return frozen }
			defer func() { m.Store.Clock = clock }()
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"the latest tick is believed", []string{"clock/was 10m0s ahead", "clock/was 2h0m0s ahead",
		"clock/was 9600h0m0s ahead"}, func(m *mutant) {
		var mu sync.Mutex
		latest := map[string]time.Time{}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			mu.Lock()
			defer mu.Unlock()
			if req.Tick != nil && req.Tick.Delay == 0 && req.Tick.At.Before(latest[req.Name]) {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Slots: req.Slots,
					Reason: driver.ReasonTickLate}
			}
			g, err := m.Store.TryAcquire(ctx, req)
			if err == nil && req.Tick != nil {
				latest[req.Name] = req.Tick.At
			}
			return g, err
		}
	}},
	{"a release in the future is believed", []string{"clock/was 10m0s ahead"}, func(m *mutant) {
		var mu sync.Mutex
		released := map[string]time.Time{}
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, g := range grants {
				released[g.Name] = m.Store.Clock()
			}
			return m.Store.Release(ctx, grants...)
		}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			mu.Lock()
			defer mu.Unlock()
			if req.Tick != nil && m.Store.Clock().Before(released[req.Name].Add(req.Tick.Delay)) {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Slots: req.Slots,
					Reason: driver.ReasonTickEarly, ExpiresIn: time.Minute}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"a success in the future was a moment ago", []string{"clock/was 2h0m0s ahead"}, func(m *mutant) {
		m.successes(func(_ driver.Request, _ error, info *driver.Info) {
			info.SuccessAge = max(info.SuccessAge, time.Microsecond)
		})
	}},
	{"a pause ends when it is resumed, by the clock", []string{"clock/was 2s ahead", "clock/was 2h0m0s ahead"},
		func(m *mutant) {
			var mu sync.Mutex
			until := map[string]time.Time{}
			m.update = func(ctx context.Context, name string, change driver.Update) error {
				mu.Lock()
				defer mu.Unlock()
				if change.Resume != nil {
					until[name] = m.Store.Clock()
				}
				return m.Store.Update(ctx, name, change)
			}
			m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
				mu.Lock()
				defer mu.Unlock()
				if m.Store.Clock().Before(until[req.Name]) {
					return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Slots: req.Slots,
						Reason: driver.ReasonPaused}
				}
				return m.Store.TryAcquire(ctx, req)
			}
		}},
	{"that a tick counts for nothing is not told", []string{"clock/was 2h0m0s ahead"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]driver.ControlState, error) {
			list, err := m.Store.Inspect(ctx, names...)
			for i := range list {
				list[i].LastTickAhead = false
			}
			return list, err
		}
	}},
}
