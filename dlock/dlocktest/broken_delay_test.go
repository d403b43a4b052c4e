package dlocktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// delayMistakes are mistakes in the time between a lease and the next one.
var delayMistakes = []mistake{
	{"a delay is ignored", []string{"delay/counts from the release", "delay/counts from the expiry", "delay/any lease",
		"delay/many hosts"}, func(m *mutant) {
		m.claims(func(t *driver.Tick) {
			if t.Delay > 0 && t.Delay <= driver.MaxDelay {
				t.Delay = time.Microsecond
			}
		})
	}},
	{"a delay counts from the start", []string{"delay/counts from the release"}, func(m *mutant) {
		var mu sync.Mutex
		var began time.Time
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			mu.Lock()
			defer mu.Unlock()
			if reason(err) == driver.ReasonTickEarly && time.Since(began) >= req.Tick.Delay {
				req.Tick = &driver.Tick{Delay: time.Microsecond}
				g, err = m.Store.TryAcquire(ctx, req)
			}
			if err == nil {
				began = time.Now()
			}
			return g, err
		}
	}},
	{"a lease without a tick does not count", []string{"delay/any lease"}, func(m *mutant) {
		var mu sync.Mutex
		plain := map[string]bool{}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			mu.Lock()
			defer mu.Unlock()
			if reason(err) == driver.ReasonTickEarly && plain[req.Name] {
				req.Tick = &driver.Tick{Delay: time.Microsecond}
				g, err = m.Store.TryAcquire(ctx, req)
			}
			if err == nil {
				plain[req.Name] = req.Tick == nil
			}
			return g, err
		}
	}},
	{"the instant of a tick with a delay counts", []string{"delay/instants"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Validate() == nil && req.Tick != nil && req.Tick.Delay > 0 && time.Until(req.Tick.At) > time.Minute {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Slots: req.Slots,
					Reason: driver.ReasonTickAhead}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"a repeated request is too early", []string{"delay/token asked again"}, func(m *mutant) {
		var mu sync.Mutex
		seen := map[string]bool{}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			mu.Lock()
			again := seen[req.Token]
			seen[req.Token] = true
			mu.Unlock()
			if again && req.Tick != nil && req.Tick.Delay > 0 {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Slots: req.Slots,
					Reason: driver.ReasonTickEarly, ExpiresIn: req.Tick.Delay}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"a refusal does not say how long to wait", []string{"delay/counts from the release"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok && no.Reason == driver.ReasonTickEarly {
				no.ExpiresIn = 0
			}
			return g, err
		}
	}},
	{"a bad delay is accepted", []string{"delay/refused"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Tick != nil && req.Tick.Delay != 0 && req.Validate() != nil && req.Name == "x" {
				req.Slots, req.Tick = 1, nil
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"a limit lets a second lease in", []string{"delay/limits and pauses"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok && no.Reason == driver.ReasonFull &&
				req.Tick != nil && req.Tick.Delay > 0 && no.Info.SlotLimit > 1 {
				req.Tick = nil
				return m.Store.TryAcquire(ctx, req)
			}
			return g, err
		}
	}},
}
