package dlocktest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// countedBy makes a mutant count starts itself, by key. allow returns how long a start must wait.
// If it returns 0, the start is allowed and counted.
func countedBy(key func(driver.SemaphoreSpec) string,
	allow func(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration) func(*mutant) {
	return func(m *mutant) {
		var mu sync.Mutex
		starts := map[string]*[]time.Time{}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Validate() != nil || !slices.ContainsFunc(req.Shared, isRated) {
				return m.Store.TryAcquire(ctx, req)
			}
			mu.Lock()
			defer mu.Unlock()
			plain := req
			plain.Shared = slices.Clone(req.Shared)
			for i := range plain.Shared {
				plain.Shared[i].Rate, plain.Shared[i].Per = 0, 0
			}
			g, err := m.Store.TryAcquire(ctx, plain)
			if err != nil {
				return g, err
			}
			for _, l := range req.Shared {
				if !isRated(l) {
					continue
				}
				k := key(l)
				if starts[k] == nil {
					starts[k] = new([]time.Time)
				}
				if wait := allow(starts[k], m.Store.Clock(), l); wait > 0 {
					_, _ = m.Store.Release(ctx, all(g)...)
					return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Slots: req.Slots,
						Reason: driver.ReasonLimitRate, Shared: l, ExpiresIn: wait}
				}
			}
			return g, nil
		}
	}
}

func isRated(l driver.SemaphoreSpec) bool { return l.Rate > 0 }

func byName(l driver.SemaphoreSpec) string { return l.Name }

// slidingLog is the correct rate limit.
func slidingLog(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration {
	*starts = slices.DeleteFunc(*starts, func(at time.Time) bool { return now.Sub(at) >= l.Per })
	if len(*starts) >= l.Rate {
		return (*starts)[len(*starts)-l.Rate].Add(l.Per).Sub(now)
	}
	*starts = append(*starts, now)
	return 0
}

var rateMistakes = []mistake{
	{"the rate is forgotten", []string{"rate/counts every", "rate/few", "rate/many", "rate/alone", "rate/hosts"},
		countedBy(byName, func(*[]time.Time, time.Time, driver.SemaphoreSpec) time.Duration { return 0 })},
	{"windows begin at fixed times", []string{"rate/few", "rate/many"},
		countedBy(byName, func(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration {
			began := now.Truncate(l.Per)
			*starts = slices.DeleteFunc(*starts, func(at time.Time) bool { return at.Before(began) })
			if len(*starts) >= l.Rate {
				return began.Add(l.Per).Sub(now)
			}
			*starts = append(*starts, now)
			return 0
		})},
	{"a bucket of tokens fills up", []string{"rate/few", "rate/many"},
		countedBy(byName, func(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration {
			each := l.Per / time.Duration(l.Rate)
			next := now.Add(-l.Per)
			if len(*starts) > 0 && (*starts)[0].After(next) {
				next = (*starts)[0]
			}
			if next = next.Add(each); next.After(now) {
				return next.Sub(now)
			}
			*starts = []time.Time{next}
			return 0
		})},
	{"a repeated request counts again, and a refusal of others counts", []string{"rate/counts every"},
		countedBy(byName, slidingLog)},
	{"each rate has a count of its own", []string{"rate/hosts"},
		countedBy(func(l driver.SemaphoreSpec) string { return l.Name + l.Per.String() + string(rune('a'+l.Rate)) },
			slidingLog)},
	{"at most nine starts count in a moment", []string{"rate/counts a burst"},
		countedBy(byName, func(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration {
			moment := now.Truncate(l.Per / 60)
			n := len(*starts)
			if n >= 9 && !(*starts)[n-9].Before(moment) {
				return 0
			}
			return slidingLog(starts, now, l)
		})},
	{"a refusal counts", []string{"rate/counts no refusal", "rate/says when"},
		countedBy(byName, func(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration {
			wait := slidingLog(starts, now, l)
			if wait > 0 {
				*starts = append((*starts)[1:], now)
			}
			return wait
		})},
	{"a refusal is sure only of a whole window", []string{"rate/says when"},
		countedBy(byName, func(starts *[]time.Time, now time.Time, l driver.SemaphoreSpec) time.Duration {
			if slidingLog(starts, now, l) > 0 {
				return 2 * l.Per
			}
			return 0
		})},
	{"what was counted ahead of the clock is waited for", []string{"rate/clock set back"},
		countedBy(byName, slidingLog)},
}
