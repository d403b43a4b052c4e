package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A mutant is a memlock with one mistake in it, as somebody's store may have it.
type mutant struct {
	*memlock.Store
	acquire func(context.Context, dlock.Request) (dlock.Grant, error)
	extend  func(context.Context, time.Duration, []dlock.Grant) ([]dlock.Result, error)
	release func(context.Context, []dlock.Grant) ([]dlock.Result, error)
	list    func(context.Context, string, int) ([]dlock.LeaseInfo, error)
	update  func(context.Context, string, dlock.Update) error
	inspect func(context.Context, []string) ([]dlock.ControlState, error)
	revoke  func(context.Context, string, int, dlock.Fence, dlock.Origin) error
}

func (m *mutant) Update(ctx context.Context, name string, change dlock.Update) error {
	if m.update != nil {
		return m.update(ctx, name, change)
	}
	return m.Store.Update(ctx, name, change)
}

func (m *mutant) Inspect(ctx context.Context, names ...string) ([]dlock.ControlState, error) {
	if m.inspect != nil {
		return m.inspect(ctx, names)
	}
	return m.Store.Inspect(ctx, names...)
}

func (m *mutant) Revoke(ctx context.Context, name string, slot int, fence dlock.Fence, by dlock.Origin) error {
	if m.revoke != nil {
		return m.revoke(ctx, name, slot, fence, by)
	}
	return m.Store.Revoke(ctx, name, slot, fence, by)
}

func (m *mutant) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	if m.acquire != nil {
		return m.acquire(ctx, req)
	}
	return m.Store.TryAcquire(ctx, req)
}

func (m *mutant) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	if m.extend != nil {
		return m.extend(ctx, ttl, grants)
	}
	return m.Store.Extend(ctx, ttl, grants...)
}

func (m *mutant) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	if m.release != nil {
		return m.release(ctx, grants)
	}
	return m.Store.Release(ctx, grants...)
}

func (m *mutant) List(ctx context.Context, name string, slots int) ([]dlock.LeaseInfo, error) {
	if m.list != nil {
		return m.list(ctx, name, slots)
	}
	return m.Store.List(ctx, name, slots)
}

// owners remembers the token that holds each slot, for mutants that do not look at tokens.
type owners struct {
	mu     sync.Mutex
	tokens map[string]string
}

func (o *owners) key(g dlock.Grant) string {
	return fmt.Sprintf("%q %t %d", g.Name, g.Slots == 0, g.Slot)
}

func (o *owners) acquire(m *mutant) func(context.Context, dlock.Request) (dlock.Grant, error) {
	return func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
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

// forged returns the grants with the tokens of whoever holds their slots.
func (o *owners) forged(grants []dlock.Grant) []dlock.Grant {
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

// mutants are the mistakes, each with the promises that must catch it.
var mutants = []struct {
	name   string
	caught []string // names of promises, or how one begins
	mutate func(*mutant)
}{
	{"release does not compare tokens", []string{"release/twice", "release/only", "expiry/a lost grant", "random/operations"}, func(m *mutant) {
		var o owners
		m.acquire = o.acquire(m)
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			return m.Store.Release(ctx, o.forged(grants)...)
		}
	}},
	{"anybody can extend", []string{"extend/only", "extend/not after", "random/operations"}, func(m *mutant) {
		var o owners
		m.acquire = o.acquire(m)
		m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			return m.Store.Extend(ctx, ttl, o.forged(grants)...)
		}
	}},
	{"one slot too many", []string{"semaphore/N", "semaphore/one", "N/hosts", "hammer/N=1", "hammer/N=5", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
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
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			asked := req.Slots
			req.Slots = max(min(1, asked), asked-1)
			g, err := m.Store.TryAcquire(ctx, req)
			g.Slots = asked
			return g, as(err, asked)
		}
	}},
	{"a key that has the number of slots in it", []string{"N/hosts", "N/shrinking", "random/operations"}, func(m *mutant) {
		name := func(name string, slots int) string { return fmt.Sprintf("%s/%d", name, slots) }
		m.rename(name)
	}},
	{"a mutex kept as a semaphore of one slot", []string{"mutex and semaphore", "random/operations"}, nil},
	{"half the TTL", []string{"expiry/not before", "extend/keeps", "random/operations"}, func(m *mutant) {
		m.ttl(func(ttl time.Duration) time.Duration { return ttl / 2 })
	}},
	{"twice the TTL", []string{"expiry/not before", "expiry/a crashed", "extend/not after", "random/operations"}, func(m *mutant) {
		m.ttl(func(ttl time.Duration) time.Duration { return 2 * ttl })
	}},
	{"seconds, rounded down", []string{"expiry/not before", "random/operations"}, func(m *mutant) {
		m.ttl(func(ttl time.Duration) time.Duration { return max(ttl.Truncate(time.Second), time.Millisecond) })
	}},
	{"leases that never end", []string{"expiry/not before", "expiry/a crashed", "random/operations"}, func(m *mutant) {
		m.ttl(func(time.Duration) time.Duration { return 100 * time.Hour })
	}},
	{"extend says ok and does nothing", []string{"extend/keeps", "batch/a thousand", "random/operations"}, func(m *mutant) {
		m.extend = func(ctx context.Context, _ time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			held, err := m.Store.Extend(ctx, time.Hour)
			for range grants {
				held = append(held, dlock.Result{Outcome: dlock.GrantOK})
			}
			return held, err
		}
	}},
	{"extend brings back what has ended", []string{"extend/not after", "random/operations"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			for i, r := range results {
				if r.Outcome == dlock.GrantLost {
					req := dlock.Request{Name: grants[i].Name, Slots: grants[i].Slots, Token: grants[i].Token, TTL: ttl}
					if _, err := m.Store.TryAcquire(ctx, req); err == nil {
						results[i].Outcome = dlock.GrantOK
					}
				}
			}
			return results, err
		}
	}},
	{"release says ok and does nothing", []string{"release/frees", "random/operations"}, func(m *mutant) {
		m.release = func(_ context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			return slices.Repeat([]dlock.Result{{Outcome: dlock.GrantOK}}, len(grants)), nil
		}
	}},
	{"release says ok to everything", []string{"release/twice", "batch/a thousand", "random/operations"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			_, err := m.Store.Release(ctx, grants...)
			return slices.Repeat([]dlock.Result{{Outcome: dlock.GrantOK}}, len(grants)), err
		}
	}},
	{"release does not know AnySlot", []string{"release/by token", "token/lost reply", "random/operations"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			grants = slices.Clone(grants)
			for i := range grants {
				if grants[i].Slot == dlock.AnySlot {
					grants[i].Token += "-"
				}
			}
			return m.Store.Release(ctx, grants...)
		}
	}},
	{"results in another order", []string{"batch/a thousand", "random/operations"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			slices.Reverse(results)
			return results, err
		}
	}},
	{"a batch that is cut", []string{"batch/a thousand"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			return m.Store.Extend(ctx, ttl, grants[:min(len(grants), 999)]...)
		}
	}},
	{"an empty batch is an error", []string{"batch/none"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			if len(grants) == 0 {
				return nil, errors.New("syntax error near ()")
			}
			return m.Store.Release(ctx, grants...)
		}
	}},
	{"fences that stand still", []string{"fence/grows over release", "hammer/N=1", "random/operations"}, func(m *mutant) {
		m.grant(func(g *dlock.Grant) { g.Fence = 7 })
	}},
	{"fences that fall", []string{"fence/grows over release", "hammer/mutex", "random/operations"}, func(m *mutant) {
		m.grant(func(g *dlock.Grant) { g.Fence = 1<<60 - g.Fence })
	}},
	{"fences through a float", []string{"fence/grows over release", "random/operations"}, func(m *mutant) {
		m.grant(func(g *dlock.Grant) { g.Fence = dlock.Fence(float32(g.Fence)) })
	}},
	{"fences that count from one", []string{"fence/grows over a loss"}, nil},
	{"fences from the clock alone", []string{"fence/grows over release", "random/operations"}, func(m *mutant) {
		m.grant(func(g *dlock.Grant) { g.Fence = dlock.Fence(time.Now().UnixMilli()) })
	}},
	{"no fences", []string{"mutex/one holder"}, func(m *mutant) { m.grant(func(g *dlock.Grant) { g.Fence = 0 }) }},
	{"asked again takes a second slot", []string{"token/asked again is", "token/lost reply", "tick/token asked again", "random/operations"}, func(m *mutant) {
		n := 0
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if err := req.Validate(); err != nil {
				return dlock.Grant{}, err
			}
			n++
			token := req.Token
			again := req
			again.Token = fmt.Sprintf("%.50s-%d", token, n)
			held, err := m.Store.Extend(ctx, req.TTL, dlock.Grant{Name: req.Name, Slots: req.Slots, Slot: 0, Token: token})
			if err == nil && held[0].Outcome == dlock.GrantOK {
				req = again
			}
			g, err := m.Store.TryAcquire(ctx, req)
			g.Token = token
			return g, err
		}
	}},
	{"asked again when full is refused", []string{"token/asked again when full", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			held, err := m.Store.List(ctx, req.Name, req.Slots)
			if err == nil && len(held) >= max(1, req.Slots) && req.Validate() == nil {
				return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonFull, Slots: req.Slots, Holder: held[0].Holder, HeldFor: held[0].HeldFor, ExpiresIn: held[0].ExpiresIn}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"asked again does not extend", []string{"token/asked again extends", "random/operations"}, func(m *mutant) {
		granted := make(map[string]attempt)
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
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
	{"ticks are not counted", []string{"tick/at most", "tick/older", "tick/stays", "tick/many hosts", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			err := req.Validate()
			if err == nil {
				req.Tick = nil
				return m.Store.TryAcquire(ctx, req)
			}
			return dlock.Grant{}, err
		}
	}},
	{"the tick is claimed before the slot", []string{"tick/refused slot", "tick/many hosts", "random/operations"}, func(m *mutant) {
		ticks := memlock.New()
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if req.Tick == nil || req.Validate() != nil {
				return m.Store.TryAcquire(ctx, req)
			}
			again, err := m.Store.Extend(ctx, req.TTL, byToken(req))
			if err == nil && again[0].Outcome != dlock.GrantOK {
				claim := req
				claim.Slots, claim.TTL = dlock.MaxSlots-min(1, req.Slots), time.Millisecond
				claim.Name = fmt.Sprintf("%t", req.Slots == 0) + req.Name[:min(len(req.Name), 200)]
				if _, err := ticks.TryAcquire(ctx, claim); err != nil {
					return dlock.Grant{}, as(err, req.Slots)
				}
			}
			req.Tick = nil
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"the slot is taken before the tick", []string{"tick/refused start", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if why := reason(err); why == dlock.ReasonTickTaken || why == dlock.ReasonTickLate {
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
			if time.Until(at) > dlock.MaxTickAhead {
				return time.Now().Add(dlock.MaxTickAhead)
			}
			return at
		})
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
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if err := req.Validate(); err != nil {
				return dlock.Grant{}, &dlock.NotAcquiredError{Reason: dlock.ReasonPaused}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"no answer is a refusal", []string{"context/ended"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if ctx.Err() != nil {
				return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonFull, Slots: req.Slots}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"the context is not looked at", []string{"context/ended"}, func(m *mutant) {
		m.acquire = func(_ context.Context, req dlock.Request) (dlock.Grant, error) {
			return m.Store.TryAcquire(context.Background(), req)
		}
	}},
	{"the holder is not told", []string{"full/names the holder"}, func(m *mutant) {
		m.refusal(func(no *dlock.NotAcquiredError) { no.Holder = dlock.Holder{} })
	}},
	{"the holder's age is not told", []string{"full/names the holder"}, func(m *mutant) {
		m.refusal(func(no *dlock.NotAcquiredError) { no.HeldFor = 0 })
	}},
	{"holders put together with a colon", []string{"full/any holder"}, func(m *mutant) {
		m.refusal(func(no *dlock.NotAcquiredError) { no.Holder.Host, _, _ = strings.Cut(no.Holder.Host, ":") })
	}},
	{"the wrong holder of several", []string{"full/names the lease"}, func(m *mutant) {
		m.refusal(func(no *dlock.NotAcquiredError) {
			if held, err := m.Store.List(context.Background(), no.Name, no.Slots); err == nil && len(held) > 0 {
				no.Holder = held[0].Holder
			}
		})
	}},
	{"no info", []string{"N/info"}, func(m *mutant) { m.grant(func(g *dlock.Grant) { g.Info = dlock.Info{} }) }},
	{"no successes", []string{"success/told to all", "success/told with", "success/stays", "success/by token", "success/told when", "success/is its", "success/each"}, func(m *mutant) {
		m.successes(func(_ dlock.Request, _ error, info *dlock.Info) { info.SinceSuccess = 0 })
	}},
	{"refusals tell of no success", []string{"success/told with every"}, func(m *mutant) {
		m.successes(func(_ dlock.Request, err error, info *dlock.Info) {
			if err != nil {
				info.SinceSuccess = 0
			}
		})
	}},
	{"refused ticks tell of no success", []string{"success/told with every"}, func(m *mutant) {
		m.successes(func(_ dlock.Request, err error, info *dlock.Info) {
			if why := reason(err); why != "" && why != dlock.ReasonFull {
				info.SinceSuccess = 0
			}
		})
	}},
	{"asked again tells of no success", []string{"success/told when asked"}, func(m *mutant) {
		asked := make(map[string]bool)
		m.successes(func(req dlock.Request, err error, info *dlock.Info) {
			if asked[req.Token] {
				info.SinceSuccess = 0
			}
			asked[req.Token] = true
		})
	}},
	{"every success has just been", []string{"success/told to all", "success/told with", "success/stays"}, func(m *mutant) {
		m.successes(func(_ dlock.Request, _ error, info *dlock.Info) {
			info.SinceSuccess = min(info.SinceSuccess, time.Microsecond)
		})
	}},
	{"a success in another unit", []string{"success/told to all"}, func(m *mutant) {
		m.successes(func(_ dlock.Request, _ error, info *dlock.Info) { info.SinceSuccess *= 1000 })
	}},
	{"the first success stays", []string{"success/told to all"}, func(m *mutant) {
		first := make(map[string]bool)
		m.releases(func(g *dlock.Grant) {
			g.Succeeded = g.Succeeded && !first[g.Name]
			first[g.Name] = first[g.Name] || g.Succeeded
		})
	}},
	{"every release is a success", []string{"success/told to all", "success/stays", "success/not of", "success/each"}, func(m *mutant) {
		m.releases(func(g *dlock.Grant) { g.Succeeded = true })
	}},
	{"every grant is a success", []string{"success/told to all", "success/not of a lost", "success/is its"}, func(m *mutant) {
		granted := make(map[string]time.Time)
		m.successes(func(req dlock.Request, err error, info *dlock.Info) {
			if at, ok := granted[req.Name]; ok {
				info.SinceSuccess = max(time.Microsecond, time.Since(at))
			}
			if err == nil {
				granted[req.Name] = time.Now()
			}
		})
	}},
	{"a success with AnySlot is not one", []string{"success/by token"}, func(m *mutant) {
		m.releases(func(g *dlock.Grant) { g.Succeeded = g.Succeeded && g.Slot != dlock.AnySlot })
	}},
	{"a lost grant is a success", []string{"success/not of a lost", "success/each"}, func(m *mutant) {
		m.remembered(func(g dlock.Grant, _ dlock.GrantOutcome) bool { return g.Succeeded }, successKey)
	}},
	{"a release without success forgets it", []string{"success/told to all", "success/stays"}, func(m *mutant) {
		last := make(map[string]bool)
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			results, err := m.Store.Release(ctx, grants...)
			for i, r := range results {
				if r.Outcome == dlock.GrantOK {
					last[successKey(grants[i])] = grants[i].Succeeded
				}
			}
			return results, err
		}
		m.successes(func(req dlock.Request, _ error, info *dlock.Info) {
			if !last[successKey(dlock.Grant{Name: req.Name, Slots: req.Slots})] {
				info.SinceSuccess = 0
			}
		})
	}},
	{"mutex and semaphore have one success", []string{"success/is its"}, func(m *mutant) {
		m.remembered(func(g dlock.Grant, did dlock.GrantOutcome) bool { return g.Succeeded && did == dlock.GrantOK }, func(g dlock.Grant) string { return g.Name })
	}},
	{"the success of each number of slots", []string{"success/stays"}, func(m *mutant) {
		m.remembered(func(g dlock.Grant, did dlock.GrantOutcome) bool { return g.Succeeded && did == dlock.GrantOK },
			func(g dlock.Grant) string { return fmt.Sprintf("%s/%d", g.Name, g.Slots) })
	}},
	{"one success for all of a batch", []string{"success/each"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			grants = slices.Clone(grants)
			well := slices.ContainsFunc(grants, func(g dlock.Grant) bool { return g.Succeeded })
			for i := range grants {
				grants[i].Succeeded = well
			}
			return m.Store.Release(ctx, grants...)
		}
	}},
	{"the last of a batch decides about its name", []string{"success/each"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
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
	{"nothing is ever abandoned", []string{"previous expired/a slot", "previous expired/each", "previous expired/by hosts"}, func(m *mutant) {
		m.grant(func(g *dlock.Grant) { g.PreviousExpired = false })
	}},
	{"everything is abandoned", []string{"previous expired/a slot", "previous expired/not one", "previous expired/each"}, func(m *mutant) {
		m.grant(func(g *dlock.Grant) { g.PreviousExpired = true })
	}},
	{"a slot that was never had is abandoned", []string{"previous expired/a slot", "previous expired/not one"}, func(m *mutant) {
		had := make(map[string]bool)
		m.grant(func(g *dlock.Grant) {
			key := fmt.Sprint(successKey(*g), g.Slot)
			g.PreviousExpired = g.PreviousExpired || !had[key]
			had[key] = true
		})
	}},
	{"abandoned until somebody else has released it", []string{"previous expired/a slot"}, func(m *mutant) {
		told := make(map[string]bool)
		m.grant(func(g *dlock.Grant) {
			key := fmt.Sprint(successKey(*g), g.Slot)
			g.PreviousExpired = g.PreviousExpired || told[key]
			told[key] = g.PreviousExpired
		})
	}},
	{"a release that came too late counts", []string{"previous expired/a slot"}, func(m *mutant) {
		late := make(map[string]bool)
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			for _, g := range grants {
				late[fmt.Sprint(successKey(g), g.Slot)] = true
			}
			return m.Store.Release(ctx, grants...)
		}
		m.grant(func(g *dlock.Grant) {
			key := fmt.Sprint(successKey(*g), g.Slot)
			g.PreviousExpired = g.PreviousExpired && !late[key]
			delete(late, key)
		})
	}},
	{"asked again is abandoned", []string{"previous expired/not one"}, func(m *mutant) {
		tokens := make(map[string]bool)
		m.grant(func(g *dlock.Grant) {
			g.PreviousExpired = g.PreviousExpired || tokens[g.Token]
			tokens[g.Token] = true
		})
	}},
	{"a release by AnySlot abandons", []string{"previous expired/not one"}, func(m *mutant) {
		by := make(map[string]bool)
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			for _, g := range grants {
				by[successKey(g)] = by[successKey(g)] || g.Slot == dlock.AnySlot
			}
			return m.Store.Release(ctx, grants...)
		}
		m.grant(func(g *dlock.Grant) { g.PreviousExpired = g.PreviousExpired || by[successKey(*g)] })
	}},
	{"one slot abandoned, all abandoned", []string{"previous expired/each"}, func(m *mutant) {
		names := make(map[string]bool)
		m.grant(func(g *dlock.Grant) {
			names[g.Name] = names[g.Name] || g.PreviousExpired
			g.PreviousExpired = names[g.Name]
		})
	}},
	{"what a smaller N finds is released", []string{"previous expired/by hosts"}, func(m *mutant) {
		fewest := make(map[string]int)
		m.grant(func(g *dlock.Grant) {
			if n, ok := fewest[g.Name]; !ok || g.Slots < n {
				fewest[g.Name] = g.Slots
			}
			g.PreviousExpired = g.PreviousExpired && g.Slots <= fewest[g.Name]
		})
	}},
	{"a list of the other kind", []string{"list/"}, func(m *mutant) {
		m.list = func(ctx context.Context, name string, slots int) ([]dlock.LeaseInfo, error) {
			return m.Store.List(ctx, name, 1-min(1, slots))
		}
	}},
	{"a list with the wrong fence", []string{"list/"}, func(m *mutant) {
		m.list = func(ctx context.Context, name string, slots int) ([]dlock.LeaseInfo, error) {
			list, err := m.Store.List(ctx, name, slots)
			for i := range list {
				list[i].Fence++
			}
			return list, err
		}
	}},
	{"a pause is ignored", []string{"control/a paused name", "control/are their name's own", "missed/not during a pause"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) { c.Pause = nil })
	}},
	{"a pause has no end", []string{"control/a pause ends"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) {
			if c.Pause != nil {
				c.Pause.For = dlock.MaxPause
			}
		})
	}},
	{"a pause ends early", []string{"control/a pause ends"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) {
			if c.Pause != nil {
				c.Pause.For /= 2
			}
		})
	}},
	{"a pause cannot be taken back", []string{"control/a paused name", "control/read back"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) {
			c.Resume = nil
		})
	}},
	{"a pause ends leases", []string{"control/a pause leaves"}, func(m *mutant) {
		granted := m.remember()
		m.update = func(ctx context.Context, name string, change dlock.Update) error {
			if change.Pause != nil {
				for _, g := range granted[name] {
					_, _ = m.Store.Release(ctx, g)
				}
			}
			return m.Store.Update(ctx, name, change)
		}
	}},
	{"a pause counts for the mutex of that name", []string{"control/are their name's own"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if req.Slots == 0 && req.Validate() == nil {
				if list, err := m.Store.Inspect(ctx, req.Name); err == nil && list[0].Pause != nil {
					return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonPaused}
				}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"who paused is not told", []string{"control/a paused name", "control/a limit of nothing", "missed/not during a pause", "missed/not under a limit"}, func(m *mutant) {
		m.refusal(func(no *dlock.NotAcquiredError) { no.PausedBy = dlock.Origin{} })
	}},
	{"a limit is ignored", []string{"control/a limit that was raised", "control/a limit that was lowered", "control/a limit of nothing", "control/outlive"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) { c.Limit = nil })
	}},
	{"a limit is never more than what is declared", []string{"control/a limit that was raised"}, func(m *mutant) {
		m.slotLimit(func(declared, limit int) int { return min(declared, limit) })
	}},
	{"a lowered limit looks at the number of the slot alone", []string{"control/a limit that was lowered"}, func(m *mutant) {
		m.slotLimit(func(_, limit int) int { return limit })
	}},
	{"a limit of nothing is no limit", []string{"control/a limit of nothing", "control/read back", "missed/not under a limit"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) {
			if c.Limit != nil && c.Limit.Slots == 0 {
				c.Limit, c.ResetLimit = nil, &c.Limit.Origin
			}
		})
	}},
	{"a release forgets the overrides", []string{"control/outlive"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
			results, err := m.Store.Release(ctx, grants...)
			for _, g := range grants {
				_ = m.Store.Update(ctx, g.Name, dlock.Update{Resume: &ann, ResetLimit: &ann})
			}
			return results, err
		}
	}},
	{"the version of the overrides stays", []string{"control/every answer"}, func(m *mutant) {
		first := make(map[string]int64)
		m.successes(func(req dlock.Request, _ error, info *dlock.Info) {
			if first[req.Name] == 0 {
				first[req.Name] = info.Version
			}
			info.Version = first[req.Name]
		})
	}},
	{"a heartbeat does not tell of overrides", []string{"control/every answer"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			for i := range results {
				results[i].Info.Version = 0
			}
			return results, err
		}
	}},
	{"the overrides of another name", []string{"control/read back"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]dlock.ControlState, error) {
			list, err := m.Store.Inspect(ctx, names...)
			slices.Reverse(list)
			for i := range list {
				list[i].Name = names[i]
			}
			return list, err
		}
	}},
	{"a name twice is told once", []string{"control/read back"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]dlock.ControlState, error) {
			names = slices.Clone(names)
			slices.Sort(names)
			return m.Store.Inspect(ctx, slices.Compact(names)...)
		}
	}},
	{"each update takes the place of all", []string{"control/read back", "control/a trigger has"}, func(m *mutant) {
		m.update = func(ctx context.Context, name string, change dlock.Update) error {
			err := m.Store.Update(ctx, name, change)
			if err == nil && change.Trigger == nil {
				m.untriggered(name, true)
			} else if err == nil {
				m.untriggered(name, false)
			}
			return err
		}
	}},
	{"a trigger is always now", []string{"control/a trigger has"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]dlock.ControlState, error) {
			list, err := m.Store.Inspect(ctx, names...)
			for i := range list {
				if t := list[i].Trigger; t != nil {
					t.At, t.Ago = time.Now(), 0
				}
			}
			time.Sleep(time.Millisecond) // a bubble's clock would stand still
			return list, err
		}
	}},
	{"origins put together with quotes", []string{"control/a paused name", "control/read back", "control/a trigger has"}, func(m *mutant) {
		cut := func(o *dlock.Origin) { o.Note, _, _ = strings.Cut(o.Note, "'") }
		m.changes(func(c *dlock.Update) {
			if c.Pause != nil {
				cut(&c.Pause.Origin)
			}
			if c.Trigger != nil {
				cut(c.Trigger)
			}
		})
	}},
	{"any update is accepted", []string{"control/nonsense"}, func(m *mutant) {
		m.update = func(ctx context.Context, name string, change dlock.Update) error {
			if change.Validate() != nil {
				return nil
			}
			return m.Store.Update(ctx, name, change)
		}
	}},
	{"who had the tick first is told", []string{"control/who has a tick"}, func(m *mutant) {
		first := make(map[string]dlock.Holder)
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if _, known := first[req.Name]; !known && err == nil && req.Tick != nil {
				first[req.Name] = req.Holder
			}
			if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok && no.Reason == dlock.ReasonTickTaken {
				no.Holder = first[req.Name]
			}
			return g, err
		}
	}},
	{"who was refused has the tick", []string{"control/who has a tick"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok && no.Reason == dlock.ReasonTickTaken {
				no.Holder = req.Holder
			}
			return g, err
		}
	}},
	{"a new name has missed a tick", []string{"missed/what ran", "missed/a new schedule"}, func(m *mutant) { m.missed(dlock.ReasonTickFirst) }},
	{"a tick that ran was missed", []string{"missed/what ran"}, func(m *mutant) { m.missed(dlock.ReasonTickTaken) }},
	{"a tick within a pause was missed", []string{"missed/not during a pause", "missed/not under"}, func(m *mutant) { m.missed(dlock.ReasonPaused) }},
	{"a tick that was skipped was missed", []string{"missed/what came due", "missed/also if nobody"}, func(m *mutant) { m.missed(dlock.ReasonTickHeld) }},
	{"schedules are not told apart", []string{"missed/a new schedule"}, func(m *mutant) {
		m.claims(func(t *dlock.Tick) { t.Schedule = 0 })
	}},
	{"schedules pass through a float", []string{"missed/a new schedule"}, func(m *mutant) {
		m.claims(func(t *dlock.Tick) { t.Schedule = int64(float64(t.Schedule / 2)) })
	}},
	{"a tick was missed at its instant", []string{"missed/what came due", "missed/not during a pause"}, func(m *mutant) {
		m.claims(func(t *dlock.Tick) {
			if !t.Missed.IsZero() {
				t.Missed = t.At
			}
		})
	}},
	{"a limit of nothing that was lifted is forgotten", []string{"missed/not under a limit"}, func(m *mutant) {
		lifted := make(map[string]bool)
		m.update = func(ctx context.Context, name string, change dlock.Update) error {
			lifted[name] = change.ResetLimit != nil || change.Limit != nil && change.Limit.Slots != 0
			return m.Store.Update(ctx, name, change)
		}
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if reason(err) == dlock.ReasonPaused && lifted[req.Name] && req.Tick != nil {
				tick := *req.Tick
				tick.Missed = time.Time{}
				req.Tick = &tick
				return m.Store.TryAcquire(ctx, req)
			}
			return g, err
		}
	}},
	{"a lifted limit of nothing ends a pause", []string{"missed/not under a limit"}, func(m *mutant) {
		m.changes(func(c *dlock.Update) {
			if c.ResetLimit != nil {
				c.Pause, c.Resume = nil, &ann
			}
		})
	}},
	{"a limit override adds starts", []string{"tick/a limit override"}, func(m *mutant) {
		limits := make(map[string]int)
		m.update = func(ctx context.Context, name string, change dlock.Update) error {
			if l := change.Limit; l != nil {
				limits[name] = l.Slots
			} else if change.ResetLimit != nil {
				limits[name] = 0
			}
			return m.Store.Update(ctx, name, change)
		}
		m.claimsOf(func(name string, t *dlock.Tick) { t.Max = max(t.Max, limits[name]) })
	}},
	{"a limit override takes starts", []string{"tick/a limit override"}, func(m *mutant) {
		limits := make(map[string]int)
		m.update = func(ctx context.Context, name string, change dlock.Update) error {
			if l := change.Limit; l != nil {
				limits[name] = l.Slots
			} else if change.ResetLimit != nil {
				limits[name] = 0
			}
			return m.Store.Update(ctx, name, change)
		}
		m.claimsOf(func(name string, t *dlock.Tick) {
			if limit := limits[name]; limit > 0 {
				t.Max = min(t.Max, limit)
			}
		})
	}},
	{"revoke frees the slot", []string{"revoke/the slot stays", "revoke/the holder is told"}, func(m *mutant) {
		granted := m.remember()
		m.revoke = func(ctx context.Context, name string, slot int, fence dlock.Fence, by dlock.Origin) error {
			err := m.Store.Revoke(ctx, name, slot, fence, by)
			for _, g := range granted[name] {
				if err == nil && g.Slot == slot && g.Fence == fence {
					_, _ = m.Store.Release(ctx, g)
				}
			}
			return err
		}
	}},
	{"a heartbeat forgets who was revoked", []string{"revoke/the holder is told"}, func(m *mutant) {
		m.revoke = func(ctx context.Context, name string, slot int, fence dlock.Fence, _ dlock.Origin) error {
			_, err := m.held(ctx, name, slot, fence)
			return err
		}
	}},
	{"a heartbeat says lost and not by whom", []string{"revoke/the holder is told"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			for i := range results {
				results[i].RevokedBy = nil
			}
			return results, err
		}
	}},
	{"who revoked last is told", []string{"revoke/the holder is told"}, func(m *mutant) { m.revocations(true, false) }},
	{"revoke does not look at the fence", []string{"revoke/the lease that is meant"}, func(m *mutant) {
		m.revoke = func(ctx context.Context, name string, slot int, _ dlock.Fence, by dlock.Origin) error {
			h, err := m.held(ctx, name, slot, 0)
			if err != nil {
				return err
			}
			return m.Store.Revoke(ctx, name, slot, h.Fence, by)
		}
	}},
	{"revoke of nothing is fine", []string{"revoke/the lease that is meant"}, func(m *mutant) {
		m.revoke = func(ctx context.Context, name string, slot int, fence dlock.Fence, by dlock.Origin) error {
			if err := m.Store.Revoke(ctx, name, slot, fence, by); !errors.Is(err, dlock.ErrNotHeld) {
				return err
			}
			return nil
		}
	}},
	{"what is revoked is still extended", []string{"revoke/ends with"}, func(m *mutant) { m.revocations(false, true) }},
	{"what is revoked is not extended when asked again", []string{"revoke/ends with"}, func(m *mutant) {
		granted := make(map[string]dlock.Grant)
		revoked := make(map[dlock.Fence]bool)
		m.revoke = func(ctx context.Context, name string, slot int, fence dlock.Fence, by dlock.Origin) error {
			err := m.Store.Revoke(ctx, name, slot, fence, by)
			revoked[fence] = err == nil
			return err
		}
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if g, again := granted[req.Token]; again && revoked[g.Fence] {
				return g, nil
			}
			g, err := m.Store.TryAcquire(ctx, req)
			if err == nil {
				granted[req.Token] = g
			}
			return g, err
		}
	}},
	{"a look, and then a write", []string{"hammer/N=5", "hammer/mutex"}, nil},
	{"full, now and then", []string{"hammer/N=16", "random/operations"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
			if rand.N(10) == 0 && req.Validate() == nil && req.Name != "warm-up" {
				return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonFull, Slots: req.Slots}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
}

// changes spoils every update.
func (m *mutant) changes(spoil func(*dlock.Update)) {
	m.update = func(ctx context.Context, name string, change dlock.Update) error {
		if change.Validate() == nil {
			if p := change.Pause; p != nil {
				clone := *p
				change.Pause = &clone
			}
			if l := change.Limit; l != nil {
				clone := *l
				change.Limit = &clone
			}
			if t := change.Trigger; t != nil {
				clone := *t
				change.Trigger = &clone
			}
			spoil(&change)
		}
		return m.Store.Update(ctx, name, change)
	}
}

// slotLimit keeps limits in place of the store: as another number of slots to ask for.
func (m *mutant) slotLimit(slots func(declared, limit int) int) {
	limits := make(map[string]int)
	m.update = func(ctx context.Context, name string, change dlock.Update) error {
		switch l := change.Limit; {
		case change.Validate() != nil:
		case l != nil && l.Slots != 0:
			limits[name] = l.Slots
			change.Limit = nil
		case change.ResetLimit != nil:
			limits[name] = 0
			change.ResetLimit = nil
		}
		return m.Store.Update(ctx, name, change)
	}
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		asked, limit := req.Slots, limits[req.Name]
		if asked > 0 && limit > 0 {
			req.Slots = slots(asked, limit)
		}
		g, err := m.Store.TryAcquire(ctx, req)
		g.Slots, g.Info.SlotLimit = asked, limit
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			no.Info.SlotLimit = limit
		}
		return g, as(err, asked)
	}
}

// remember returns what was granted, by name.
func (m *mutant) remember() map[string][]dlock.Grant {
	granted := make(map[string][]dlock.Grant)
	m.grant(func(g *dlock.Grant) {
		if g.Slots > 0 {
			granted[g.Name] = append(granted[g.Name], *g)
		}
	})
	return granted
}

// untriggered has the name told of no trigger from now on, or again.
func (m *mutant) untriggered(name string, gone bool) {
	m.inspect = func(ctx context.Context, names []string) ([]dlock.ControlState, error) {
		list, err := m.Store.Inspect(ctx, names...)
		for i := range list {
			if gone && list[i].Name == name {
				list[i].Trigger = nil
			}
		}
		return list, err
	}
}

// missed grants the tick all the same when it was refused for that reason, as missed.
func (m *mutant) missed(why dlock.Reason) {
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if req.Tick != nil && !req.Tick.Missed.IsZero() && reason(err) == why {
			req.Tick = &dlock.Tick{At: req.Tick.At, Max: req.Tick.Max, Schedule: req.Tick.Schedule}
			return m.Store.TryAcquire(ctx, req)
		}
		return g, err
	}
}

// held returns who holds a slot with that fence, or with any.
func (m *mutant) held(ctx context.Context, name string, slot int, fence dlock.Fence) (dlock.LeaseInfo, error) {
	list, err := m.Store.List(ctx, name, 1)
	if err != nil {
		return dlock.LeaseInfo{}, err
	}
	for _, h := range list {
		if h.Slot == slot && (fence == 0 || h.Fence == fence) {
			return h, nil
		}
	}
	return dlock.LeaseInfo{}, dlock.ErrNotHeld
}

// revocations keeps them in place of the store, which extends what is revoked with each heartbeat
// if it is to.
func (m *mutant) revocations(last, extends bool) {
	revoked := make(map[dlock.Fence]dlock.Origin)
	m.revoke = func(ctx context.Context, name string, slot int, fence dlock.Fence, by dlock.Origin) error {
		if err := by.Validate(); err != nil {
			return err
		}
		if _, err := m.held(ctx, name, slot, fence); err != nil {
			return err
		}
		if _, twice := revoked[fence]; !twice || last {
			revoked[fence] = by
		}
		return nil
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
		results := make([]dlock.Result, len(grants))
		for i, g := range grants {
			by, gone := revoked[g.Fence]
			if !gone || extends {
				one, err := m.Store.Extend(ctx, ttl, g)
				if err != nil {
					return nil, err
				}
				results[i] = one[0]
			}
			if gone {
				results[i].Outcome, results[i].RevokedBy = dlock.GrantLost, &by
			}
		}
		return results, nil
	}
}

// as makes a refusal speak of the number of slots that was asked for.
func as(err error, slots int) error {
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		no.Slots = slots
		return no
	}
	return err
}

func (m *mutant) grant(change func(*dlock.Grant)) {
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if err == nil {
			change(&g)
		}
		return g, err
	}
}

func (m *mutant) refusal(change func(*dlock.NotAcquiredError)) {
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			change(no)
		}
		return g, err
	}
}

// successes changes what every answer to an acquire says of the last success.
func (m *mutant) successes(change func(dlock.Request, error, *dlock.Info)) {
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		g, err := m.Store.TryAcquire(ctx, req)
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			change(req, err, &no.Info)
		} else if err == nil {
			change(req, nil, &g.Info)
		}
		return g, err
	}
}

// releases changes every grant that is released.
func (m *mutant) releases(change func(*dlock.Grant)) {
	m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
		grants = slices.Clone(grants)
		for i := range grants {
			change(&grants[i])
		}
		return m.Store.Release(ctx, grants...)
	}
}

// remembered keeps the successes that counts, by a key, in place of the store.
func (m *mutant) remembered(counts func(dlock.Grant, dlock.GrantOutcome) bool, key func(dlock.Grant) string) {
	at := make(map[string]time.Time)
	m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
		results, err := m.Store.Release(ctx, grants...)
		for i, r := range results {
			if counts(grants[i], r.Outcome) {
				at[key(grants[i])] = time.Now()
			}
		}
		return results, err
	}
	m.successes(func(req dlock.Request, _ error, info *dlock.Info) {
		info.SinceSuccess = 0
		if t, ok := at[key(dlock.Grant{Name: req.Name, Slots: req.Slots})]; ok {
			info.SinceSuccess = max(time.Microsecond, time.Since(t))
		}
	})
}

// successKey tells apart what has a success of its own.
func successKey(g dlock.Grant) string { return fmt.Sprintf("%s %t", g.Name, g.Slots == 0) }

func (m *mutant) ttl(change func(time.Duration) time.Duration) {
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		if req.Validate() == nil {
			req.TTL = change(req.TTL)
		}
		return m.Store.TryAcquire(ctx, req)
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
		return m.Store.Extend(ctx, change(ttl), grants...)
	}
}

func (m *mutant) tick(change func(time.Time) time.Time) {
	m.claims(func(t *dlock.Tick) { t.At = change(t.At) })
}

// claims changes every claim of a tick.
func (m *mutant) claims(change func(*dlock.Tick)) {
	m.claimsOf(func(_ string, t *dlock.Tick) { change(t) })
}

func (m *mutant) claimsOf(change func(string, *dlock.Tick)) {
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		if req.Tick != nil && req.Validate() == nil {
			tick := *req.Tick
			change(req.Name, &tick)
			req.Tick = &tick
		}
		return m.Store.TryAcquire(ctx, req)
	}
}

// rename makes a store that keeps names under another name.
func (m *mutant) rename(change func(name string, slots int) string) {
	renamed := func(grants []dlock.Grant) []dlock.Grant {
		grants = slices.Clone(grants)
		for i, g := range grants {
			grants[i].Name = change(g.Name, g.Slots)
		}
		return grants
	}
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		name := req.Name
		if req.Validate() == nil {
			req.Name = change(name, req.Slots)
		}
		g, err := m.Store.TryAcquire(ctx, req)
		g.Name = name
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			no.Name = name
		}
		return g, err
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
		return m.Store.Extend(ctx, ttl, renamed(grants)...)
	}
	m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
		return m.Store.Release(ctx, renamed(grants)...)
	}
	m.list = func(ctx context.Context, name string, slots int) ([]dlock.LeaseInfo, error) {
		list, err := m.Store.List(ctx, change(name, slots), slots)
		for i := range list {
			list[i].Name = name
		}
		return list, err
	}
}

// oneKind keeps a mutex in the place of a semaphore with one slot.
func oneKind(m *mutant) {
	same := func(grants []dlock.Grant) []dlock.Grant {
		grants = slices.Clone(grants)
		for i := range grants {
			grants[i].Slots = max(1, grants[i].Slots)
		}
		return grants
	}
	m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
		asked := req.Slots
		if asked == 0 {
			req.Slots = 1
		}
		g, err := m.Store.TryAcquire(ctx, req)
		g.Slots = asked
		return g, as(err, asked)
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
		return m.Store.Extend(ctx, ttl, same(grants)...)
	}
	m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
		return m.Store.Release(ctx, same(grants)...)
	}
}

// lookThenWrite is a store with a gap between finding a free slot and taking it. It knows nothing
// of TTLs and ticks.
type lookThenWrite struct {
	mu    sync.Mutex
	held  map[string]string
	fence dlock.Fence
}

func (s *lookThenWrite) TryAcquire(_ context.Context, req dlock.Request) (dlock.Grant, error) {
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
		return dlock.Grant{Name: req.Name, Slots: req.Slots, Slot: slot, Token: req.Token, Fence: s.fence}, nil
	}
	return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonFull, Slots: req.Slots}
}

func (s *lookThenWrite) Extend(_ context.Context, _ time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	return slices.Repeat([]dlock.Result{{Outcome: dlock.GrantOK}}, len(grants)), nil
}

func (s *lookThenWrite) Release(_ context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range grants {
		delete(s.held, fmt.Sprintf("%q %t %d", g.Name, g.Slots == 0, g.Slot))
	}
	return slices.Repeat([]dlock.Result{{Outcome: dlock.GrantOK}}, len(grants)), nil
}

func (s *lookThenWrite) List(context.Context, string, int) ([]dlock.LeaseInfo, error) {
	return nil, nil
}

// brokenHarness returns a harness of the mutant of that name.
func brokenHarness(name string, mutate func(*mutant)) Harness {
	return Harness{
		Features: Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true, PreviousExpired: true, Control: true, Listing: true},
		Virtual:  true,
		New: func(testing.TB) Namespace {
			if name == "a look, and then a write" {
				store := new(lookThenWrite)
				return Namespace{Open: func() dlock.DistributedLock { return store }}
			}
			m := &mutant{Store: memlock.New()}
			ns := Namespace{
				Open:     func() dlock.DistributedLock { return m },
				LoseData: func() { *m.Store = memlock.Store{} },
			}
			switch name {
			case "a mutex kept as a semaphore of one slot":
				oneKind(m)
			case "fences that count from one":
				var mu sync.Mutex
				var last dlock.Fence
				m.grant(func(g *dlock.Grant) {
					mu.Lock()
					defer mu.Unlock()
					last++
					g.Fence = last
				})
				ns.LoseData = func() { *m.Store, last = memlock.Store{}, 0 }
			default:
				mutate(m)
			}
			return ns
		},
	}.withDefaults()
}

// A suite that passes everything proves nothing: each mistake must be caught by the promises it
// breaks.
func TestMutantsAreCaught(t *testing.T) {
	for _, broken := range mutants {
		t.Run(broken.name, func(t *testing.T) {
			h := brokenHarness(broken.name, broken.mutate)
			for _, want := range broken.caught {
				i := slices.IndexFunc(promises, func(p promise) bool { return strings.HasPrefix(p.name, want) })
				if i < 0 {
					t.Fatalf("no promise begins with %q", want)
				}
				var c *check
				synctest.Test(t, func(t *testing.T) { c = h.try(t, promises[i]) })
				if len(c.broken) == 0 {
					t.Errorf("%q was kept", promises[i].name)
				} else {
					t.Logf("%s: %s", promises[i].name, c.broken[0])
				}
			}
		})
	}
}

// A store that states less is tested for less, and may not pretend.
func TestFeatures(t *testing.T) {
	modest := func(change func(*mutant)) Harness {
		h := brokenHarness("", func(m *mutant) {
			if change != nil {
				change(m)
			}
		})
		h.Features = Features{}
		return h
	}
	run := func(h Harness, name string) *check {
		var c *check
		for _, p := range promises {
			if p.name == name {
				synctest.Test(t, func(t *testing.T) { c = h.try(t, p) })
			}
		}
		return c
	}
	if c := run(modest(nil), "mutex/one holder"); len(c.broken) == 0 {
		t.Error("a store gives fences without stating it: not caught")
	}
	fenceless := func(change func(*dlock.Grant)) func(*mutant) {
		return func(m *mutant) {
			m.grant(func(g *dlock.Grant) {
				g.Fence = 0
				change(g)
			})
		}
	}
	if c := run(modest(fenceless(func(g *dlock.Grant) { g.Info.SinceSuccess = time.Second })), "mutex/one holder"); len(c.broken) == 0 {
		t.Error("a store tells of successes without stating it: not caught")
	}
	if c := run(modest(fenceless(func(g *dlock.Grant) { g.PreviousExpired = true })), "mutex/one holder"); len(c.broken) == 0 {
		t.Error("a store tells of abandoned slots without stating it: not caught")
	}
	if c := run(modest(nil), "list/shows who holds what"); len(c.broken) == 0 {
		t.Error("a store lists without stating it: not caught")
	}
	if c := run(modest(func(m *mutant) { m.grant(func(g *dlock.Grant) { g.Fence = 0 }) }), "mutex/one holder"); len(c.broken) > 0 {
		t.Errorf("a store without fences that says so: %v", c.broken)
	}
	for _, name := range []string{"tick/at most Max starts", "fence/grows over release and expiry", "N/info of the other number", "cost/one round trip per call", "success/told to all who ask", "previous expired/each slot for itself"} {
		if c := run(modest(nil), name); c.skipped == "" {
			t.Errorf("%q was tested though the store does not state it", name)
		}
	}

	counting := modest(nil)
	counting.Features = Features{Fence: true, AtomicTick: true, Holders: true, OneRoundTrip: true}
	if c := run(counting, "cost/one round trip per call"); len(c.broken) == 0 {
		t.Error("OneRoundTrip without a counter: not caught")
	}
	for _, perSlot := range []bool{false, true} {
		n := int64(0)
		counting.New = func(testing.TB) Namespace {
			m := &mutant{Store: memlock.New()}
			count := func(grants []dlock.Grant) {
				n++
				if perSlot {
					n += int64(len(grants)) - 1
				}
			}
			m.acquire = func(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
				count(make([]dlock.Grant, max(1, req.Slots)))
				return m.Store.TryAcquire(ctx, req)
			}
			m.extend = func(ctx context.Context, ttl time.Duration, grants []dlock.Grant) ([]dlock.Result, error) {
				count(grants)
				return m.Store.Extend(ctx, ttl, grants...)
			}
			m.release = func(ctx context.Context, grants []dlock.Grant) ([]dlock.Result, error) {
				count(grants)
				return m.Store.Release(ctx, grants...)
			}
			return Namespace{Open: func() dlock.DistributedLock { return m }, RoundTrips: func() int64 { return n }}
		}
		if c := run(counting, "cost/one round trip per call"); len(c.broken) > 0 != perSlot {
			t.Errorf("a round trip per slot: %v; found %v", perSlot, c.broken)
		}
	}
}

// The names that the suite tries must be names, and differ.
func TestNamesAreNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range trickyNames() {
		if err := dlock.CheckName(name); err != nil {
			t.Error(err)
		}
		if seen[name] {
			t.Errorf("%q is there twice", name)
		}
		seen[name] = true
	}
	for _, name := range badNames() {
		if dlock.CheckName(name) == nil {
			t.Errorf("%q is a good name", name)
		}
	}
}
