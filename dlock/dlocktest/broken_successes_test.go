package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// successMistakes are mistakes in the records of earlier leases: successes and expired leases.
var successMistakes = []mistake{
	{"no successes", []string{"success/told to all", "success/told with", "success/stays", "success/by token",
		"success/told when", "success/is its", "success/each"}, func(m *mutant) {
		m.successes(func(_ driver.Request, _ error, info *driver.Info) { info.SuccessAge = 0 })
	}},
	{"refusals tell of no success", []string{"success/told with every"}, func(m *mutant) {
		m.successes(func(_ driver.Request, err error, info *driver.Info) {
			if err != nil {
				info.SuccessAge = 0
			}
		})
	}},
	{"refused ticks tell of no success", []string{"success/told with every"}, func(m *mutant) {
		m.successes(func(_ driver.Request, err error, info *driver.Info) {
			if why := reason(err); why != "" && why != driver.ReasonFull {
				info.SuccessAge = 0
			}
		})
	}},
	{"asked again tells of no success", []string{"success/told when asked"}, func(m *mutant) {
		asked := make(map[string]bool)
		m.successes(func(req driver.Request, err error, info *driver.Info) {
			if asked[req.Token] {
				info.SuccessAge = 0
			}
			asked[req.Token] = true
		})
	}},
	{"every success has just been", []string{"success/told to all", "success/told with", "success/stays"},
		func(m *mutant) {
			m.successes(func(_ driver.Request, _ error, info *driver.Info) {
				info.SuccessAge = min(info.SuccessAge, time.Microsecond)
			})
		}},
	{"a success in another unit", []string{"success/told to all"}, func(m *mutant) {
		m.successes(func(_ driver.Request, _ error, info *driver.Info) { info.SuccessAge *= 1000 })
	}},
	{"the first success stays", []string{"success/told to all"}, func(m *mutant) {
		first := make(map[string]bool)
		m.releases(func(g *driver.Grant) {
			g.Succeeded = g.Succeeded && !first[g.Name]
			first[g.Name] = first[g.Name] || g.Succeeded
		})
	}},
	{"every release is a success", []string{"success/told to all", "success/stays", "success/not of", "success/each"},
		func(m *mutant) {
			m.releases(func(g *driver.Grant) { g.Succeeded = true })
		}},
	{"every grant is a success", []string{"success/told to all", "success/not of a lost", "success/is its"},
		func(m *mutant) {
			granted := make(map[string]time.Time)
			m.successes(func(req driver.Request, err error, info *driver.Info) {
				if at, ok := granted[req.Name]; ok {
					info.SuccessAge = max(time.Microsecond, time.Since(at))
				}
				if err == nil {
					granted[req.Name] = time.Now()
				}
			})
		}},
	{"a success with AnySlot is not one", []string{"success/by token"}, func(m *mutant) {
		m.releases(func(g *driver.Grant) { g.Succeeded = g.Succeeded && g.Slot != driver.AnySlot })
	}},
	{"a lost grant is a success", []string{"success/not of a lost", "success/each"}, func(m *mutant) {
		m.remembered(func(g driver.Grant, _ driver.GrantOutcome) bool { return g.Succeeded }, successKey)
	}},
	{"a release without success forgets it", []string{"success/told to all", "success/stays"}, func(m *mutant) {
		last := make(map[string]bool)
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			results, err := m.Store.Release(ctx, grants...)
			for i, r := range results {
				if r.Outcome == driver.GrantOK {
					last[successKey(grants[i])] = grants[i].Succeeded
				}
			}
			return results, err
		}
		m.successes(func(req driver.Request, _ error, info *driver.Info) {
			if !last[successKey(driver.Grant{Name: req.Name, Slots: req.Slots})] {
				info.SuccessAge = 0
			}
		})
	}},
	{"mutex and semaphore have one success", []string{"success/is its"}, func(m *mutant) {
		m.remembered(func(g driver.Grant, did driver.GrantOutcome) bool {
			return g.Succeeded && did == driver.GrantOK
		}, func(g driver.Grant) string { return g.Name })
	}},
	{"the success of each number of slots", []string{"success/stays"}, func(m *mutant) {
		m.remembered(func(g driver.Grant, did driver.GrantOutcome) bool { return g.Succeeded && did == driver.GrantOK },
			func(g driver.Grant) string { return fmt.Sprintf("%s/%d", g.Name, g.Slots) })
	}},
	{"one success for all of a batch", []string{"success/each"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			grants = slices.Clone(grants)
			well := slices.ContainsFunc(grants, func(g driver.Grant) bool { return g.Succeeded })
			for i := range grants {
				grants[i].Succeeded = well
			}
			return m.Store.Release(ctx, grants...)
		}
	}},
	{"the last of a batch decides about its name", []string{"success/each"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			grants = slices.Clone(grants)
			first := make(map[string]bool)
			for i, g := range grants {
				if well, ok := first[g.Name]; ok {
					grants[i].Succeeded = well
				}
				first[g.Name] = grants[i].Succeeded
			}
			return m.Store.Release(ctx, grants...)
		}
	}},
	{"nothing is ever reported as expired", []string{"previous expired/a slot", "previous expired/each",
		"previous expired/by hosts"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.PreviousExpired = false })
	}},
	{"everything is reported as expired", []string{"previous expired/a slot", "previous expired/not one",
		"previous expired/each"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.PreviousExpired = true })
	}},
	{"every grant names slot 0", []string{"previous expired/each", "previous expired/by hosts"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.Slot = 0 })
	}},
	{"a slot that was never held is reported as expired",
		[]string{"previous expired/a slot", "previous expired/not one"},
		func(m *mutant) {
			had := make(map[string]bool)
			m.grant(func(g *driver.Grant) {
				key := fmt.Sprint(successKey(*g), g.Slot)
				g.PreviousExpired = g.PreviousExpired || !had[key]
				had[key] = true
			})
		}},
	{"expired until somebody else has released it", []string{"previous expired/a slot"}, func(m *mutant) {
		told := make(map[string]bool)
		m.grant(func(g *driver.Grant) {
			key := fmt.Sprint(successKey(*g), g.Slot)
			g.PreviousExpired = g.PreviousExpired || told[key]
			told[key] = g.PreviousExpired
		})
	}},
	{"a release that came too late counts", []string{"previous expired/a slot"}, func(m *mutant) {
		late := make(map[string]bool)
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			for _, g := range grants {
				late[fmt.Sprint(successKey(g), g.Slot)] = true
			}
			return m.Store.Release(ctx, grants...)
		}
		m.grant(func(g *driver.Grant) {
			key := fmt.Sprint(successKey(*g), g.Slot)
			g.PreviousExpired = g.PreviousExpired && !late[key]
			delete(late, key)
		})
	}},
	{"a repeated request is reported as expired", []string{"previous expired/not one"}, func(m *mutant) {
		tokens := make(map[string]bool)
		m.grant(func(g *driver.Grant) {
			g.PreviousExpired = g.PreviousExpired || tokens[g.Token]
			tokens[g.Token] = true
		})
	}},
	{"a release by AnySlot counts as an expiry", []string{"previous expired/not one"}, func(m *mutant) {
		by := make(map[string]bool)
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			for _, g := range grants {
				by[successKey(g)] = by[successKey(g)] || g.Slot == driver.AnySlot
			}
			return m.Store.Release(ctx, grants...)
		}
		m.grant(func(g *driver.Grant) { g.PreviousExpired = g.PreviousExpired || by[successKey(*g)] })
	}},
	{"one slot expired, all expired", []string{"previous expired/each"}, func(m *mutant) {
		names := make(map[string]bool)
		m.grant(func(g *driver.Grant) {
			names[g.Name] = names[g.Name] || g.PreviousExpired
			g.PreviousExpired = names[g.Name]
		})
	}},
	{"what a smaller N finds is released", []string{"previous expired/by hosts"}, func(m *mutant) {
		fewest := make(map[string]int)
		m.grant(func(g *driver.Grant) {
			if n, ok := fewest[g.Name]; !ok || g.Slots < n {
				fewest[g.Name] = g.Slots
			}
			g.PreviousExpired = g.PreviousExpired && g.Slots <= fewest[g.Name]
		})
	}},
}

// successes changes the last success that every answer to an acquire reports.
func (m *mutant) successes(change func(driver.Request, error, *driver.Info)) {
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
			change(req, err, &no.Info)
		} else if err == nil {
			change(req, nil, &g.Info)
		}
		return g, err
	}
}

// releases modifies every released grant.
func (m *mutant) releases(change func(*driver.Grant)) {
	m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
		grants = slices.Clone(grants)
		for i := range grants {
			change(&grants[i])
		}
		return m.Store.Release(ctx, grants...)
	}
}

// remembered stores successes in place of the store, by key, if counts returns true.
func (m *mutant) remembered(counts func(driver.Grant, driver.GrantOutcome) bool, key func(driver.Grant) string) {
	at := make(map[string]time.Time)
	m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
		results, err := m.Store.Release(ctx, grants...)
		for i, r := range results {
			if counts(grants[i], r.Outcome) {
				at[key(grants[i])] = time.Now()
			}
		}
		return results, err
	}
	m.successes(func(req driver.Request, _ error, info *driver.Info) {
		info.SuccessAge = 0
		if t, ok := at[key(driver.Grant{Name: req.Name, Slots: req.Slots})]; ok {
			info.SuccessAge = max(time.Microsecond, time.Since(t))
		}
	})
}

// successKey returns a different key for each lock with its own last success.
func successKey(g driver.Grant) string { return fmt.Sprintf("%s %t", g.Name, g.Slots == 0) }
