package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Timers are registered, updated, removed and triggered in random order, while the store is slow or
// fails. No removed timer starts a run, no tick of a LocalOnly timer starts two runs, and the heap
// has each next tick once. Nothing is left after Run.
func TestAnythingInAnyOrder(t *testing.T) {
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { (&churn{t: t, round: round, seen: map[string]int{}}).all() })
		})
	}
}

// A churn changes the timers a, b, c and d of a host. Another host also has a and b. c and d do not
// use the store, and d is never removed.
type churn struct {
	t     *testing.T
	round int
	host  *host
	made  atomic.Int64 // timers created so far
	over  atomic.Bool

	mu   sync.Mutex
	seen map[string]int // runs of d by tick
}

func (c *churn) all() {
	f := newFleet(c.t)
	var hosts []*host
	for range 2 {
		hosts = append(hosts, f.start(timer.Config{MaxRuns: 1 + c.round%3, MaxWait: 20 * time.Second,
			DrainTimeout: time.Second, Limits: []timer.Limit{{Name: "l", Size: 1}}}))
	}
	c.host = hosts[0]
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() { c.change(name) })
	}
	all.Go(func() { c.disturb(hosts[1]) })
	all.Go(c.watch)
	all.Wait()
	c.host.Link.Heal()
	if c.round%2 == 0 {
		time.Sleep(time.Minute)
	}
	f.Stop()
	for _, h := range hosts {
		h.Accounted(c.t)
		if left := timer.Left(h.Scheduler); left != "" {
			c.t.Error("left: ", left)
		}
	}
}

// back reports whether the clock of the host is set back in this round.
func (c *churn) back() bool { return c.round%4 == 3 }

// timer returns a random timer with that name, and a flag to set when the timer is removed.
func (c *churn) timer(name string) (timer.Timer, *atomic.Bool) {
	removed, nth := new(atomic.Bool), c.made.Add(1)
	tm := timer.Timer{Name: name, MaxConcurrency: 1 + rand.IntN(2), MaxRunTime: 3 * time.Second,
		LocalOnly: name >= "c", OnFull: timer.FullPolicy(rand.IntN(2)),
		LeastRecentFirst: rand.IntN(4) == 0 && name < "c",
		Schedule:         schedule.Every(time.Duration(1+rand.IntN(2)) * time.Second).Offset(0)}
	switch {
	case name == "d":
		tm.Schedule = schedule.Every(time.Second).Offset(0)
	case rand.IntN(5) == 0:
		tm.Schedule, tm.MaxConcurrency, tm.LeastRecentFirst = schedule.After(1500*time.Millisecond), 1, false
	}
	if name < "c" && rand.IntN(3) == 0 {
		tm.Limits = []string{"l"}
	}
	tm.Run = func(ctx context.Context) error {
		if removed.Load() {
			c.t.Errorf("a run of %s, number %d, which was removed", name, nth)
		}
		if r, _ := timer.RunFromContext(ctx); name == "d" && !r.Tick().IsZero() {
			tick := r.Tick().String()
			c.mu.Lock()
			c.seen[tick]++
			times := c.seen[tick]
			c.mu.Unlock()
			if times > 1 && !c.back() {
				c.t.Errorf("tick %s ran %d times", tick, times)
			}
		}
		return sleep(ctx, rand.N(2500*time.Millisecond))
	}
	return tm, removed
}

// change makes a random change to one name. No other goroutine changes that name, so change knows
// what is registered.
func (c *churn) change(name string) {
	var present []*atomic.Bool // removed flags of the current registration
	for range 150 {
		tm, removed := c.timer(name)
		ctx, cancel := context.WithTimeout(c.t.Context(), rand.N(2*time.Second))
		switch what := rand.IntN(10); {
		case what < 3:
			if c.host.Register(tm) == nil {
				present = []*atomic.Bool{removed}
			}
		case what < 7:
			if c.host.Update(tm) == nil {
				present = append(present, removed)
			}
		case what < 8 && name != "d":
			if err := c.host.Remove(ctx, name); err == nil || errors.Is(err, context.DeadlineExceeded) {
				for _, r := range present {
					r.Store(true)
				}
				present = nil
			}
		default:
			_, _ = c.host.Scheduler.Trigger(ctx, name, timer.TriggerOptions{})
		}
		cancel()
		time.Sleep(rand.N(400 * time.Millisecond))
	}
}

// disturb makes the store of the host slow or makes it fail, and changes the timers of the other
// host.
func (c *churn) disturb(other *host) {
	for began := time.Now(); time.Since(began) < 40*time.Second && !c.over.Load(); {
		switch rand.IntN(3) {
		case 0:
			c.host.Link.Inject(dlocktest.Slow(1+rand.N(400*time.Millisecond)), dlocktest.OpAcquire, dlocktest.OpRelease)
		case 1:
			c.host.Link.Heal()
		case 2:
			c.host.Link.InjectN(1, dlocktest.Error(errors.New("a hiccup")), dlocktest.OpAcquire)
		}
		for _, name := range []string{"a", "b"} {
			tm, _ := c.timer(name)
			_ = other.Register(tm)
			_ = other.Update(tm)
		}
		time.Sleep(rand.N(3 * time.Second))
	}
	c.over.Store(true)
}

// watch checks the planned ticks, and sets the clock back at random.
func (c *churn) watch() {
	for !c.over.Load() {
		if c.back() && rand.IntN(20) == 0 {
			timer.SetSkew(c.host.Scheduler, -rand.N(10*time.Second))
			timer.Poke(c.host.Scheduler)
		}
		synctest.Wait()
		if wrong := timer.Misplanned(c.host.Scheduler); wrong != "" {
			c.t.Error(wrong)
			c.over.Store(true)
		}
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}
