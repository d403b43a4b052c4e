package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// leaseMistakes are mistakes in how leases are granted, kept and released.
var leaseMistakes = []mistake{
	{"release does not compare tokens", []string{"release/twice", "release/only", "expiry/a lost grant",
		"random/operations"}, func(m *mutant) {
		var o owners
		m.acquire = o.acquire(m)
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			return m.Store.Release(ctx, o.forged(grants)...)
		}
	}},
	{"anybody can extend", []string{"extend/only", "extend/not after", "random/operations"}, func(m *mutant) {
		var o owners
		m.acquire = o.acquire(m)
		m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
			return m.Store.Extend(ctx, ttl, o.forged(grants)...)
		}
	}},
	{"one slot too many", []string{"semaphore/N", "semaphore/one", "N/hosts", "hammer/N=1", "hammer/N=5",
		"random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			asked := req.Slots
			if asked > 0 {
				req.Slots++
			}
			g, err := m.Store.TryAcquire(ctx, req)
			g.Slots = asked
			return g, as(err, asked)
		}
	}},
	{"one slot too few", []string{"semaphore/N", "N/hosts", "hammer/N=16", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			asked := req.Slots
			req.Slots = max(min(1, asked), asked-1)
			g, err := m.Store.TryAcquire(ctx, req)
			g.Slots = asked
			return g, as(err, asked)
		}
	}},
	{"a key that has the number of slots in it", []string{"N/hosts", "N/shrinking", "random/operations"},
		func(m *mutant) {
			name := func(name string, slots int) string { return fmt.Sprintf("%s/%d", name, slots) }
			m.rename(name)
		}},
	{"a mutex kept as a semaphore of one slot", []string{"mutex and semaphore", "random/operations"}, nil},
	{"half the TTL", []string{"expiry/not before", "extend/keeps", "random/operations"}, func(m *mutant) {
		m.ttl(func(ttl time.Duration) time.Duration { return ttl / 2 })
	}},
	{"twice the TTL", []string{"expiry/not before", "expiry/a crashed", "extend/not after", "random/operations"},
		func(m *mutant) {
			m.ttl(func(ttl time.Duration) time.Duration { return 2 * ttl })
		}},
	{"seconds, rounded down", []string{"expiry/not before", "random/operations"}, func(m *mutant) {
		m.ttl(func(ttl time.Duration) time.Duration { return max(ttl.Truncate(time.Second), time.Millisecond) })
	}},
	{"leases that never end", []string{"expiry/not before", "expiry/a crashed", "random/operations"}, func(m *mutant) {
		m.ttl(func(time.Duration) time.Duration { return 100 * time.Hour })
	}},
	{"extend says ok and does nothing", []string{"extend/keeps", "batch/a thousand", "random/operations"},
		func(m *mutant) {
			m.extend = func(ctx context.Context, _ time.Duration, grants []driver.Grant) ([]driver.Result, error) {
				held, err := m.Store.Extend(ctx, time.Hour)
				for range grants {
					held = append(held, driver.Result{Outcome: driver.GrantOK})
				}
				return held, err
			}
		}},
	{"extend brings back what has ended", []string{"extend/not after", "random/operations"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			for i, r := range results {
				if r.Outcome == driver.GrantLost {
					req := driver.Request{Name: grants[i].Name, Slots: grants[i].Slots, Token: grants[i].Token,
						TTL: ttl}
					if _, err := m.Store.TryAcquire(ctx, req); err == nil {
						results[i].Outcome = driver.GrantOK
					}
				}
			}
			return results, err
		}
	}},
	{"release says ok and does nothing", []string{"release/frees", "random/operations"}, func(m *mutant) {
		m.release = func(_ context.Context, grants []driver.Grant) ([]driver.Result, error) {
			return slices.Repeat([]driver.Result{{Outcome: driver.GrantOK}}, len(grants)), nil
		}
	}},
	{"release says ok to everything", []string{"release/twice", "batch/a thousand", "random/operations"},
		func(m *mutant) {
			m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
				_, err := m.Store.Release(ctx, grants...)
				return slices.Repeat([]driver.Result{{Outcome: driver.GrantOK}}, len(grants)), err
			}
		}},
	{"release does not know AnySlot", []string{"release/by token", "token/lost reply", "random/operations"},
		func(m *mutant) {
			m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
				grants = slices.Clone(grants)
				for i := range grants {
					if grants[i].Slot == driver.AnySlot {
						grants[i].Token += "-"
					}
				}
				return m.Store.Release(ctx, grants...)
			}
		}},
	{"results in another order", []string{"batch/a thousand", "random/operations"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			slices.Reverse(results)
			return results, err
		}
	}},
	{"a batch that is cut", []string{"batch/a thousand"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
			return m.Store.Extend(ctx, ttl, grants[:min(len(grants), 999)]...)
		}
	}},
	{"an empty batch is an error", []string{"batch/none"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			if len(grants) == 0 {
				return nil, errors.New("syntax error near ()")
			}
			return m.Store.Release(ctx, grants...)
		}
	}},
	{"fences that stand still", []string{"fence/grows over release", "hammer/N=1", "random/operations"},
		func(m *mutant) {
			m.grant(func(g *driver.Grant) { g.Fence = 7 })
		}},
	{"fences that fall", []string{"fence/grows over release", "hammer/mutex", "random/operations"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.Fence = 1<<60 - g.Fence })
	}},
	{"fences through a float", []string{"fence/grows over release", "random/operations"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.Fence = driver.Fence(float32(g.Fence)) })
	}},
	{"fences that count from one", []string{"fence/grows over a loss"}, nil},
	{"fences from the clock alone", []string{"fence/grows over release", "random/operations"}, func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.Fence = driver.Fence(time.Now().UnixMilli()) })
	}},
	{"no fences", []string{"mutex/one holder"}, func(m *mutant) { m.grant(func(g *driver.Grant) { g.Fence = 0 }) }},
	{"asked again takes a second slot", []string{"token/asked again is", "token/lost reply", "tick/token asked again",
		"random/operations"}, func(m *mutant) {
		n := 0
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if err := req.Validate(); err != nil {
				return driver.Grant{}, err
			}
			n++
			token := req.Token
			again := req
			again.Token = fmt.Sprintf("%.50s-%d", token, n)
			held, err := m.Store.Extend(ctx, req.TTL, driver.Grant{Name: req.Name, Slots: req.Slots, Slot: 0,
				Token: token})
			if err == nil && held[0].Outcome == driver.GrantOK {
				req = again
			}
			g, err := m.Store.TryAcquire(ctx, req)
			g.Token = token
			return g, err
		}
	}},
	{"asked again when full is refused", []string{"token/asked again when full", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			held, err := m.Store.List(ctx, req.Name, req.Slots)
			if err == nil && len(held) >= max(1, req.Slots) && req.Validate() == nil {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonFull,
					Slots: req.Slots, Holder: held[0].Holder, HeldFor: held[0].HeldFor, ExpiresIn: held[0].ExpiresIn}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"asked again does not extend", []string{"token/asked again extends", "random/operations"}, func(m *mutant) {
		granted := make(map[string]attempt)
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if before, ok := granted[req.Token]; ok && time.Now().Before(before.heldUntil()) {
				return before.grant, nil
			}
			g, err := m.Store.TryAcquire(ctx, req)
			if err == nil {
				granted[req.Token] = attempt{req: req, grant: g, sent: time.Now()}
			}
			return g, err
		}
	}},
	{"names in any case", []string{"names/"}, func(m *mutant) {
		m.rename(func(name string, _ int) string { return strings.ToLower(name) })
	}},
	{"names without the spaces at their ends", []string{"names/"}, func(m *mutant) {
		m.rename(func(name string, _ int) string { return "-" + strings.TrimRight(name, " ") })
	}},
	{"names that are cut", []string{"names/"}, func(m *mutant) {
		m.rename(func(name string, _ int) string { return strings.ToValidUTF8(name[:min(len(name), 255)], "") })
	}},
	{"names without accents", []string{"names/"}, func(m *mutant) {
		m.rename(func(name string, _ int) string { return strings.ReplaceAll(name, "á", "a") })
	}},
	{"invalid requests get through", []string{"request/invalid"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if err := req.Validate(); err != nil {
				return driver.Grant{}, &driver.NotAcquiredError{Reason: driver.ReasonPaused}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"no answer is a refusal", []string{"context/ended"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if ctx.Err() != nil {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonFull,
					Slots: req.Slots}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"the context is not looked at", []string{"context/ended"}, func(m *mutant) {
		m.acquire = func(_ context.Context, req driver.Request) (driver.Grant, error) {
			return m.Store.TryAcquire(context.Background(), req)
		}
	}},
	{"the holder is not told", []string{"full/names the holder"}, func(m *mutant) {
		m.refusal(func(no *driver.NotAcquiredError) { no.Holder = driver.Holder{} })
	}},
	{"the holder's age is not told", []string{"full/names the holder"}, func(m *mutant) {
		m.refusal(func(no *driver.NotAcquiredError) { no.HeldFor = 0 })
	}},
	{"holders put together with a colon", []string{"full/any holder"}, func(m *mutant) {
		m.refusal(func(no *driver.NotAcquiredError) { no.Holder.Host, _, _ = strings.Cut(no.Holder.Host, ":") })
	}},
	{"the wrong holder of several", []string{"full/names the lease"}, func(m *mutant) {
		m.refusal(func(no *driver.NotAcquiredError) {
			if held, err := m.Store.List(context.Background(), no.Name, no.Slots); err == nil && len(held) > 0 {
				no.Holder = held[0].Holder
			}
		})
	}},
	{"no info", []string{"N/info"}, func(m *mutant) { m.grant(func(g *driver.Grant) { g.Info = driver.Info{} }) }},
	{"a list of the other kind", []string{"list/"}, func(m *mutant) {
		m.list = func(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
			return m.Store.List(ctx, name, 1-min(1, slots))
		}
	}},
	{"a list with the wrong fence", []string{"list/"}, func(m *mutant) {
		m.list = func(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
			list, err := m.Store.List(ctx, name, slots)
			for i := range list {
				list[i].Fence++
			}
			return list, err
		}
	}},
	{"a look, and then a write", []string{"hammer/N=5", "hammer/mutex"}, nil},
	{"full, now and then", []string{"hammer/N=16", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if rand.N(10) == 0 && req.Validate() == nil && req.Name != "warm-up" {
				return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonFull,
					Slots: req.Slots}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
}
