package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// rated returns orders with a rate in the fleet.
func rated(rate int, per time.Duration) store.Handler {
	return store.Handler{Name: "orders", MaxAttempts: 3, Rate: rate, Per: per}
}

var rates = []promise{
	{"rates/Rate holds over all workers, no matter how the runs end", func(c *check) {
		hourly := rated(3, time.Hour)
		c.ready(hourly, mails)
		if h := c.handler("orders"); h.Rate != 3 || h.Per != time.Hour || h.MaxPerPartition != 0 {
			c.Errorf("%+v", h)
		}
		c.inserts("orders", 10)
		c.inserts("mails", 2)
		if first := c.claim(request(1, hourly)); !first.Next.IsZero() { // two more runs may start now
			c.Errorf("%+v", first)
		} else {
			c.finishes(succeeded(first.Runs[0]))
		}
		second := request(1, hourly)
		second.TTL = short
		c.claims(1, second)
		c.reclaims(1)
		c.finishes(givenBack(c.claims(1, request(1, hourly))[0]))
		last := c.claim(request(10, hourly, mails)) // the rate does not bound mails
		if len(last.Runs) != 2 || last.Runs[0].Handler != "mails" {
			c.Errorf("%+v", last.Runs)
		}
		if wait := last.Next.Sub(last.Now); wait <= 0 || wait > time.Hour+short {
			c.Errorf("the next run may start in %v", wait)
		}
		// Neither pausing nor deleting ended runs gives a start back.
		c.setHandler("orders", store.Override{PausedUntil: ptr(time.Hour)})
		if paused := c.claim(request(10, hourly)); !paused.Next.IsZero() || len(paused.Runs) > 0 {
			c.Errorf("%+v", paused)
		}
		c.setHandler("orders", store.Override{PausedUntil: ptr(time.Duration(0))})
		c.pass(c.now().Add(short))
		if c.sweep(store.Retention{Succeeded: time.Microsecond, Unseen: time.Microsecond}, 100) == 0 {
			c.Errorf("nothing was deleted")
		}
		c.ready(hourly)
		c.claims(0, request(10, hourly))
		// Workers with different rates count the same starts. Workers without a rate do not count
		// starts.
		c.claims(1, request(10, rated(4, time.Hour)))
		c.claims(0, request(10, rated(4, 2*time.Hour)))
		c.claims(2, request(2, orders))
		c.claims(1, request(10, rated(5, 30*24*time.Hour)))
		c.claims(0, request(10, rated(5, 30*24*time.Hour)))
	}},
	{"rates/the smallest limit counts", func(c *check) {
		h := rated(4, time.Hour)
		h.MaxConcurrency, h.MaxPerPartition = 3, 2
		c.ready(h)
		if row := c.handler("orders"); row.MaxPerPartition != 2 || row.MaxConcurrency != 3 {
			c.Errorf("%+v", row)
		}
		c.tenants("a", 3)
		c.tenants("b", 3)
		runs := c.claims(3, request(10, h))
		c.finishes(succeeded(runs[0]), succeeded(runs[1]), succeeded(runs[2]))
		c.claims(1, request(10, h))
		c.claims(0, request(10, h))
	}},
	{"rates/a large rate needs few records", func(c *check) {
		largest := rated(1_000_000_000, 30*24*time.Hour)
		c.ready(largest)
		c.inserts("orders", 70)
		for range 35 {
			c.claims(1, request(1, largest))
		}
		c.claims(0, request(10, rated(35, time.Hour)))
		for range 2 { // each start has its own record
			c.claims(17, request(17, rated(1_000_000, time.Hour)))
		}
		c.claims(0, request(10, rated(69, time.Hour)))
		c.claims(1, request(10, rated(70, time.Hour)))
	}},
	{"rates/the log has 64 records", func(c *check) {
		many := rated(200, time.Hour)
		exact := rated(60, short)
		c.ready(many)
		c.inserts("orders", 90)
		for range 80 {
			c.pass(c.now().Add(time.Millisecond))
			if len(c.claim(request(1, exact)).Runs) == 0 {
				c.pass(c.now().Add(short))
				c.claims(1, request(1, exact))
			}
		}
		c.claims(0, request(10, rated(80, time.Hour)))
		c.claims(1, request(10, rated(81, time.Hour)))
	}},
	{"rates/no window has more starts than the rate", func(c *check) {
		const rate, per, total = 5, 4 * short, 20
		h := rated(rate, per)
		c.ready(h)
		c.inserts("orders", total)
		var mu sync.Mutex
		var starts []time.Time
		c.atOnce(3, func(i int, c *check) {
			r := request(1+i, h)
			r.Worker = fmt.Sprint("worker", i)
			for !c.Failed() {
				claimed := c.claim(r)
				mu.Lock()
				for _, run := range claimed.Runs {
					starts = append(starts, run.ClaimedAt)
				}
				done := len(starts) == total
				mu.Unlock()
				if done {
					return
				}
				if claimed.Next.IsZero() {
					time.Sleep(crowdPause)
				} else {
					time.Sleep(claimed.Next.Sub(claimed.Now))
				}
			}
		})
		slices.SortFunc(starts, time.Time.Compare)
		for i := rate; i < len(starts); i++ {
			if within := starts[i].Sub(starts[i-rate]); within <= per {
				c.Errorf("%d starts within %v", rate+1, within)
			}
		}
	}},
}
