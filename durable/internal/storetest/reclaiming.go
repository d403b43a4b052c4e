package storetest

import (
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var reclaiming = []promise{
	{"reclaiming/a run whose lease has expired is queued again, with a lost attempt", func(c *check) {
		run := c.expired(orders)
		got := c.reclaims(1)[0]
		if got != (store.Reclaimed{RunKey: run.RunKey, MaxAttempts: 3, Crashes: 1, Handler: "orders", Worker: worker}) {
			c.Errorf("%+v", got)
		}
		stored, attempts := c.run(run.ID)
		if stored.State != store.StateQueued || !stored.FinishedAt.IsZero() || len(attempts) != 1 {
			c.Fatalf("%+v, %+v", stored, attempts)
		}
		if a := attempts[0]; a.Attempt != 1 || a.Worker != worker || a.Outcome != store.OutcomeLeaseLost ||
			!a.StartedAt.Equal(run.ClaimedAt) || a.FinishedAt.Before(run.LeaseUntil) {
			c.Errorf("%+v", a)
		}
		if again := c.claimOne(orders); again.ID != run.ID || again.Attempt != 2 || again.MaxAttempts != 3 {
			c.Errorf("%+v", again)
		}
	}},
	{"reclaiming/not before the lease has expired, or after it was renewed", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 2)
		c.claims(1, request(1, orders))
		r := request(1, orders)
		r.TTL = short
		renewed := c.claims(1, r)[0]
		if got := c.renew(worker, renewed.RunKey); len(got) != 1 {
			c.Fatalf("%+v", got)
		}
		c.pass(renewed.LeaseUntil)
		if reclaimed := c.reclaim(10); len(reclaimed) != 0 {
			c.Errorf("%+v", reclaimed)
		}
	}},
	{"reclaiming/after the last attempt the run is dead", func(c *check) {
		last := store.Handler{Name: "orders", MaxAttempts: 2}
		run := c.expired(last)
		c.reclaims(1)
		r := request(1, last)
		r.TTL = short
		c.claims(1, r)
		from := c.now()
		if got := c.reclaims(1)[0]; !got.Dead || got.Canceled || got.Attempt != 2 || got.MaxAttempts != 2 {
			c.Errorf("%+v", got)
		}
		c.near("FinishedAt", c.inState(run.ID, store.StateDead, 2).FinishedAt, from)
		c.claims(0, request(10, last))
		c.requeue(store.Filter{}, store.Cause{})
		c.claims(1, r)
		if got := c.reclaims(1)[0]; got.Dead || got.Attempt != 3 || got.MaxAttempts != 4 {
			c.Errorf("requeued: %+v", got)
		}
	}},
	{"reclaiming/a run that has lost maxCrashes leases is dead, even if it has attempts left", func(c *check) {
		endless := store.Handler{Name: "orders"}
		run := c.expired(endless)
		r := request(1, endless)
		r.TTL = short
		c.reclaims(1)
		for i, again := range []int{2, 3, 4, 6} { // attempt 5 ends with an error of the handler
			if again == 6 {
				c.requeue(store.Filter{}, store.Cause{})
				c.finishes(failed(c.claimOne(endless)))
			}
			if claimed := c.claims(1, r)[0]; claimed.MaxAttempts != 0 || claimed.Attempt != again {
				c.Errorf("%+v, want attempt %d of any number", claimed, again)
			}
			got := c.reclaims(1)[0]
			if got.Dead != (i == 2) || got.Crashes != []int{2, 3, 4, 1}[i] || got.MaxAttempts != 0 {
				c.Errorf("attempt %d: %+v", again, got)
			}
		}
		c.inState(run.ID, store.StateQueued, 6)
	}},
	{"reclaiming/a run whose cancellation was requested is canceled", func(c *check) {
		run := c.expired(orders)
		c.cancel(run.ID, store.Cause{By: "Ann"})
		if got := c.reclaims(1)[0]; got.Dead || !got.Canceled || got.Attempt != 1 || got.MaxAttempts != 3 {
			c.Errorf("%+v", got)
		}
		if run := c.inState(run.ID, store.StateCanceled, 1); run.FinishedAt.IsZero() {
			c.Errorf("%+v", run)
		}
	}},
	{"reclaiming/returns the schedule, and needs no row of the handler", func(c *check) {
		c.planned(daily, c.now().Add(-time.Minute))
		d := c.dueSchedule("daily")
		c.materialize(plan(d, tick(daily, d.NextDueAt)))
		r := request(1, orders)
		r.TTL = short
		c.claims(1, r)
		c.register(true, []store.Handler{{Name: "mails"}})
		c.pass(c.handler("orders").SeenAt.Add(2 * time.Millisecond))
		c.sweep(store.Retention{Unseen: time.Millisecond}, 100)
		if got := c.reclaims(1)[0]; got.Schedule != "daily" || got.Handler != "orders" {
			c.Errorf("%+v", got)
		}
	}},
	{"reclaiming/at most the requested number", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 7)
		r := request(7, orders)
		r.TTL = short
		runs := c.claims(7, r)
		c.pass(runs[0].LeaseUntil)
		for _, step := range []struct{ limit, want int }{{0, 0}, {3, 3}, {3, 3}, {3, 1}, {3, 0}} {
			if got := c.reclaim(step.limit); len(got) != step.want {
				c.Errorf("%d runs, want %d", len(got), step.want)
			}
		}
	}},
	{"reclaiming/by many workers at once: each run once", func(c *check) {
		c.ready(orders)
		total := 30 * c.h.Rounds
		c.inserts("orders", total)
		r := request(total, orders)
		r.TTL = short
		runs := c.claims(total, r)
		c.pass(runs[0].LeaseUntil)
		var mu sync.Mutex
		seen := map[store.RunKey]int{}
		c.atOnce(4, func(_ int, c *check) {
			for {
				for _, got := range c.reclaim(5) {
					mu.Lock()
					seen[got.RunKey]++
					mu.Unlock()
				}
				mu.Lock()
				all := len(seen) == total
				mu.Unlock()
				if all {
					return
				}
			}
		})
		for _, run := range runs {
			if seen[run.RunKey] != 1 {
				c.Errorf("%+v was reclaimed %d times", run, seen[run.RunKey])
			}
			c.inState(run.ID, store.StateQueued, 1)
		}
	}},
	{"reclaiming/while workers finish and renew: one of the calls wins", func(c *check) {
		c.ready(orders)
		for range 3 * c.h.Rounds {
			c.inserts("orders", 8)
			r := request(8, orders)
			r.TTL = short
			runs := c.claims(8, r)
			c.pass(runs[0].LeaseUntil)
			var mu sync.Mutex
			won := map[store.RunKey]string{}
			wins := func(who string, keys ...store.RunKey) {
				mu.Lock()
				defer mu.Unlock()
				for _, key := range keys {
					won[key] += who
				}
			}
			c.atOnce(3, func(i int, c *check) {
				for n := range runs {
					switch run := runs[(n*5+i)%len(runs)]; i {
					case 0:
						wins("finished", c.finish(dead(run))...)
					case 1:
						for _, got := range c.reclaim(1) {
							wins("reclaimed", got.RunKey)
						}
					case 2:
						c.renew(worker, run.RunKey)
					}
				}
			})
			for _, run := range runs {
				stored, attempts := c.run(run.ID)
				want := map[string]string{"finished": "dead error", "reclaimed": "queued lease_lost",
					"": "running"}[won[run.RunKey]]
				got := string(stored.State)
				if len(attempts) == 1 {
					got += " " + string(attempts[0].Outcome)
				}
				if got != want || len(attempts) > 1 {
					c.Errorf("%q has counted, and the run is %s: %+v", won[run.RunKey], got, attempts)
				}
			}
			c.claimRest()
		}
	}},
}

// claimRest claims and ends all orders that are queued.
func (c *check) claimRest() {
	c.Helper()
	for {
		runs := c.claim(request(100, orders)).Runs
		if len(runs) == 0 {
			return
		}
		var results []store.Result
		for _, run := range runs {
			results = append(results, succeeded(run))
		}
		if counted := c.finish(results...); len(counted) != len(results) {
			c.Fatalf("of %d results, %d count", len(results), len(counted))
		}
	}
}
