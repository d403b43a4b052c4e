package dlocktest

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// tickMistakes are mistakes in how ticks, including missed ones, are claimed.
var tickMistakes = []mistake{
	{"ticks are not counted", []string{"tick/at most", "tick/older", "tick/stays", "tick/many hosts",
		"random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			err := req.Validate()
			if err == nil {
				req.Tick = nil
				return m.Store.TryAcquire(ctx, req)
			}
			return driver.Grant{}, err
		}
	}},
	{"the tick is claimed before the slot", []string{"tick/refused slot", "tick/many hosts", "random/operations"},
		func(m *mutant) {
			ticks := memlock.New()
			m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
				if req.Tick == nil || req.Validate() != nil {
					return m.Store.TryAcquire(ctx, req)
				}
				again, err := m.Store.Extend(ctx, req.TTL, byToken(req))
				if err == nil && again[0].Outcome != driver.GrantOK {
					claim := req
					claim.Slots, claim.TTL = driver.MaxSlots-min(1, req.Slots), time.Millisecond
					claim.Name = fmt.Sprintf("%t", req.Slots == 0) + req.Name[:min(len(req.Name), 200)]
					if _, err := ticks.TryAcquire(ctx, claim); err != nil {
						return driver.Grant{}, as(err, req.Slots)
					}
				}
				req.Tick = nil
				return m.Store.TryAcquire(ctx, req)
			}
		}},
	{"the slot is taken before the tick", []string{"tick/refused start", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if why := reason(err); why == driver.ReasonTickTaken || why == driver.ReasonTickLate {
				req.Tick = nil
				_, _ = m.Store.TryAcquire(ctx, req)
			}
			return g, err
		}
	}},
	{"milliseconds", []string{"tick/told apart"}, func(m *mutant) {
		m.tick(func(at time.Time) time.Time { return at.Truncate(time.Millisecond) })
	}},
	{"ticks ahead of the clock are accepted", []string{"tick/too far"}, func(m *mutant) {
		m.tick(func(at time.Time) time.Time {
			if time.Until(at) > driver.MaxTickAhead {
				return time.Now().Add(driver.MaxTickAhead)
			}
			return at
		})
	}},
	{"a new name has missed a tick", []string{"missed/what ran", "missed/a new schedule"}, func(m *mutant) {
		m.missed(driver.ReasonTickFirst)
	}},
	{"a tick that ran was missed", []string{"missed/what ran"}, func(m *mutant) { m.missed(driver.ReasonTickTaken) }},
	{"a tick within a pause was missed", []string{"missed/not during a pause", "missed/not under"}, func(m *mutant) {
		m.missed(driver.ReasonPaused)
	}},
	{"a tick that was skipped was missed", []string{"missed/what came due", "missed/also if nobody"}, func(m *mutant) {
		m.missed(driver.ReasonTickHeld)
	}},
	{"schedules are not told apart", []string{"missed/a new schedule"}, func(m *mutant) {
		m.claims(func(t *driver.Tick) { t.Schedule = 0 })
	}},
	{"schedules pass through a float", []string{"missed/a new schedule"}, func(m *mutant) {
		m.claims(func(t *driver.Tick) { t.Schedule = int64(float64(t.Schedule / 2)) })
	}},
	{"a tick was missed at its instant", []string{"missed/what came due", "missed/not during a pause"},
		func(m *mutant) {
			m.claims(func(t *driver.Tick) {
				if !t.MissedAt.IsZero() {
					t.MissedAt = t.At
				}
			})
		}},
	{"a limit of nothing that was lifted is forgotten", []string{"missed/not under a limit"}, func(m *mutant) {
		lifted := make(map[string]bool)
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			lifted[name] = change.ResetLimit != nil || change.Limit != nil && change.Limit.Slots != 0
			return m.Store.Update(ctx, name, change)
		}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if reason(err) == driver.ReasonPaused && lifted[req.Name] && req.Tick != nil {
				tick := *req.Tick
				tick.MissedAt = time.Time{}
				req.Tick = &tick
				return m.Store.TryAcquire(ctx, req)
			}
			return g, err
		}
	}},
	{"a lifted limit of nothing ends a pause", []string{"missed/not under a limit"}, func(m *mutant) {
		m.changes(func(c *driver.Update) {
			if c.ResetLimit != nil {
				c.Pause, c.Resume = nil, &ann
			}
		})
	}},
	{"a limit override adds starts", []string{"tick/a limit override"}, func(m *mutant) {
		limits := make(map[string]int)
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			if l := change.Limit; l != nil {
				limits[name] = l.Slots
			} else if change.ResetLimit != nil {
				limits[name] = 0
			}
			return m.Store.Update(ctx, name, change)
		}
		m.claimsOf(func(name string, t *driver.Tick) { t.Max = max(t.Max, limits[name]) })
	}},
	{"a limit override takes starts", []string{"tick/a limit override"}, func(m *mutant) {
		limits := make(map[string]int)
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			if l := change.Limit; l != nil {
				limits[name] = l.Slots
			} else if change.ResetLimit != nil {
				limits[name] = 0
			}
			return m.Store.Update(ctx, name, change)
		}
		m.claimsOf(func(name string, t *driver.Tick) {
			if limit := limits[name]; limit > 0 {
				t.Max = min(t.Max, limit)
			}
		})
	}},
}

// missed grants a missed tick that was refused for the given reason.
func (m *mutant) missed(why driver.Reason) {
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if req.Tick != nil && !req.Tick.MissedAt.IsZero() && reason(err) == why {
			req.Tick = &driver.Tick{At: req.Tick.At, Max: req.Tick.Max, Schedule: req.Tick.Schedule}
			return m.Store.TryAcquire(ctx, req)
		}
		return g, err
	}
}

func (m *mutant) tick(change func(time.Time) time.Time) {
	m.claims(func(t *driver.Tick) { t.At = change(t.At) })
}

// claims modifies every claim of a tick.
func (m *mutant) claims(change func(*driver.Tick)) {
	m.claimsOf(func(_ string, t *driver.Tick) { change(t) })
}

func (m *mutant) claimsOf(change func(string, *driver.Tick)) {
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		if req.Tick != nil && req.Validate() == nil {
			tick := *req.Tick
			change(req.Name, &tick)
			req.Tick = &tick
		}
		return m.Store.TryAcquire(ctx, req)
	}
}
