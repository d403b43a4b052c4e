package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// limited returns orders with a limit in the fleet.
func limited(limit int) store.Handler {
	return store.Handler{Name: "orders", MaxAttempts: 3, MaxConcurrency: limit}
}

var mails = store.Handler{Name: "mails", MaxAttempts: 3}

var limits = []promise{
	{"limits/MaxConcurrency holds over all workers", func(c *check) {
		c.ready(limited(3))
		c.inserts("orders", 10)
		first := c.claims(2, request(2, limited(3)))
		c.claims(1, request(10, limited(3)))
		c.claims(0, request(10, limited(3)))
		c.finishes(succeeded(first[0]), failed(first[1]))
		c.claims(2, request(10, limited(3)))
	}},
	{"limits/a handler at its limit does not hide the runs of others", func(c *check) {
		c.ready(limited(1), mails)
		for range 30 {
			c.insert(store.NewRun{Handler: "orders", Priority: -1})
		}
		c.inserts("mails", 3)
		c.claims(3, request(3, limited(1), mails))
		c.claims(1, request(3, limited(1), mails))
	}},
	{"limits/the most urgent runs of a handler come first", func(c *check) {
		c.ready(limited(2))
		c.inserts("orders", 3)
		high := c.insert(store.NewRun{Handler: "orders", Priority: -1})
		if runs := c.claims(2, request(10, limited(2))); runs[0].ID != high {
			c.Errorf("%+v", runs)
		}
	}},
	{"limits/each worker obeys its own limit", func(c *check) {
		c.ready(limited(3))
		c.inserts("orders", 10)
		c.claims(2, request(10, limited(2)))
		c.claims(0, request(10, limited(1)))
		c.claims(1, request(10, limited(3)))
		c.claims(7, request(10, limited(0)))
	}},
	{"limits/an override replaces the limit from the code", func(c *check) {
		c.ready(limited(2), mails)
		c.inserts("orders", 10)
		c.inserts("mails", 10)
		by := store.Cause{By: "Ann", Note: "the printer is slow"}
		for _, step := range []struct{ override, want int }{{0, 0}, {1, 1}, {4, 3}, {3, 0}, {-1, 0}, {6, 2}, {0, 0}} {
			c.setHandler("orders", store.Override{MaxConcurrency: ptr(step.override), By: by})
			if h := c.handler("orders"); h.Override != step.override || h.By != by || h.MaxConcurrency != 2 {
				c.Errorf("%+v", h)
			}
			c.claims(step.want, request(10, limited(2)))
		}
		c.setHandler("mails", store.Override{MaxConcurrency: ptr(3)})
		c.claims(3, request(10, mails))
		c.setHandler("mails", store.Override{MaxConcurrency: ptr(-1)})
		c.claims(7, request(10, mails))
	}},
	{"limits/a paused handler starts nothing until it is resumed or the pause ends", func(c *check) {
		c.ready(orders, mails)
		c.inserts("orders", 2)
		c.inserts("mails", 1)
		from := c.now()
		by := store.Cause{By: "Ann", Note: "stocktaking"}
		c.setHandler("orders", store.Override{PausedUntil: ptr(time.Hour), By: by})
		h := c.handler("orders")
		if h.Pause == nil || h.Pause.By != by || h.Override != -1 {
			c.Fatalf("%+v", h)
		}
		c.near("Until", h.Pause.Until, from.Add(time.Hour))
		if run := c.claimOne(orders, mails); run.Handler != "mails" {
			c.Errorf("%+v", run)
		}
		c.setHandler("orders", store.Override{PausedUntil: ptr(time.Duration(0))})
		if h := c.handler("orders"); h.Pause != nil {
			c.Errorf("%+v", h)
		}
		c.claims(1, request(1, orders))
		c.setHandler("orders", store.Override{PausedUntil: ptr(short)})
		c.pass(c.now().Add(short))
		c.claims(1, request(1, orders))
	}},
	{"limits/fields that are not in an override stay unchanged", func(c *check) {
		c.ready(orders)
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(5), By: store.Cause{By: "Ann"}})
		c.setHandler("orders", store.Override{PausedUntil: ptr(time.Hour), By: store.Cause{By: "Bob"}})
		c.setHandler("orders", store.Override{})
		h := c.handler("orders")
		if h.Override != 5 || h.By.By != "Ann" || h.Pause == nil || h.Pause.By.By != "Bob" {
			c.Errorf("%+v, %+v", h, h.Pause)
		}
	}},
	{"limits/an override may precede the handler", func(c *check) {
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(1)})
		if h := c.handler("orders"); h.Override != 1 || !h.SeenAt.IsZero() {
			c.Errorf("%+v", h)
		}
		c.ready(orders)
		c.inserts("orders", 3)
		c.claims(1, request(10, orders))
	}},
	{"limits/MaxActive holds over all handlers", func(c *check) {
		c.ready(orders, mails)
		c.inserts("orders", 3)
		c.inserts("mails", 10)
		active := func(limit, maxActive int, handlers ...store.Handler) store.ClaimRequest {
			r := request(limit, handlers...)
			r.MaxActive = maxActive
			return r
		}
		runs := c.claims(3, active(3, 5, orders))
		c.claims(2, active(10, 5, mails))
		c.claims(0, active(10, 5, orders, mails))
		c.claims(0, active(10, 4, orders, mails))
		c.finishes(succeeded(runs[0]))
		c.claims(1, active(10, 5, orders, mails))
		c.claims(2, active(10, 7, orders, mails))
		c.claims(5, active(10, 0, orders, mails))
	}},
	{"limits/MaxActive can be overridden, but all handlers together cannot be paused", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 10)
		active := request(10, orders)
		active.MaxActive = 2
		for _, step := range []struct{ override, want int }{{0, 0}, {1, 1}, {3, 2}, {-1, 0}} {
			c.setHandler("", store.Override{MaxConcurrency: ptr(step.override), By: store.Cause{By: "Ann"}})
			c.claims(step.want, active)
		}
		c.setHandler("", store.Override{MaxConcurrency: ptr(4)})
		c.claims(1, request(10, orders))
		if h := c.handler(""); h.Override != 4 {
			c.Errorf("%+v", h)
		}
		c.setHandler("", store.Override{MaxConcurrency: ptr(-1), PausedUntil: ptr(time.Hour)})
		c.claims(6, request(10, orders))
	}},
	{"limits/the smaller of both limits counts", func(c *check) {
		c.ready(limited(2), mails)
		c.inserts("orders", 10)
		c.inserts("mails", 10)
		r := request(10, limited(2), mails)
		r.MaxActive = 5
		of := map[string]int{}
		for _, run := range c.claims(5, r) {
			of[run.Handler]++
		}
		if of["orders"] != 2 || of["mails"] != 3 {
			c.Errorf("%v", of)
		}
	}},
}

// perTenant returns orders with a limit for each partition.
func perTenant(limit int) store.Handler {
	return store.Handler{Name: "orders", MaxAttempts: 3, MaxPerPartition: limit}
}

// tenants queues n runs of orders in a partition.
func (c *check) tenants(partition string, n int) {
	c.Helper()
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = store.NewRun{Handler: "orders", Partition: partition}
	}
	c.insertMany(n, runs...)
}

// partitionsOf counts runs by their partition.
func partitionsOf(runs []store.Run) map[string]int {
	of := map[string]int{}
	for _, run := range runs {
		of[run.Partition]++
	}
	return of
}

var partitions = []promise{
	{"partitions/MaxPerPartition holds over all workers and does not hide other partitions", func(c *check) {
		c.ready(perTenant(2), mails)
		c.tenants("a", 300) // more than a claim reads in the order of runs
		c.tenants("b", 3)
		c.tenants("", 3)
		c.tenants("c", 1)
		c.inserts("mails", 1)
		first := c.claims(9, request(20, perTenant(2), mails))
		if of := partitionsOf(first); of["a"] != 2 || of["b"] != 2 || of["c"] != 1 || of[""] != 4 {
			c.Errorf("%v", of)
		}
		c.claims(0, request(20, perTenant(2)))
		c.claims(0, request(20, perTenant(1)))
		c.claims(1, request(1, perTenant(3)))
		for _, run := range first {
			if run.Partition == "a" {
				c.finishes(failed(run)) // the run keeps its partition
			}
		}
		if of := partitionsOf(c.claims(1, request(20, perTenant(2)))); of["a"] != 1 { // one is still running
			c.Errorf("%v", of)
		}
		c.claims(0, request(20, perTenant(2)))
		c.claims(20, request(20, store.Handler{Name: "orders", MaxAttempts: 3})) // this handler has no limit
	}},
	{"partitions/the most urgent runs of each come first, and the overall order is kept", func(c *check) {
		c.ready(perTenant(1))
		c.tenants("b", 2)
		c.tenants("a", 1)
		urgent := c.insert(store.NewRun{Handler: "orders", Partition: "b", Priority: -1})
		c.insert(store.NewRun{Handler: "orders", Partition: "c", RunIn: time.Hour})
		runs := c.claims(2, request(20, perTenant(1)))
		if runs[0].ID != urgent || runs[1].Partition != "a" {
			c.Errorf("%+v", runs)
		}
		c.finishes(succeeded(runs[0]))
		c.claims(1, request(1, perTenant(1)))
	}},
	{"partitions/all three limits count", func(c *check) {
		both := perTenant(2)
		both.MaxConcurrency = 3
		c.ready(both)
		c.tenants("a", 5)
		c.tenants("b", 5)
		r := request(20, both)
		if of := partitionsOf(c.claims(3, r)); of["a"] > 2 || of["b"] > 2 {
			c.Errorf("%v", of)
		}
		c.claims(0, r)
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(9)})
		r.MaxActive = 3
		c.claims(0, r)
		r.MaxActive = 20
		c.claims(1, r)
		c.claims(0, r)
	}},
	{"partitions/a lost lease frees its place", func(c *check) {
		c.ready(perTenant(1))
		c.tenants("a", 2)
		r := request(20, perTenant(1))
		r.TTL = short
		c.claims(1, r)
		c.reclaims(1)
		c.claims(1, request(20, perTenant(1)))
		c.claims(0, request(20, perTenant(1)))
	}},
	{"partitions/many partitions, many of them full", func(c *check) {
		c.ready(perTenant(1))
		const all, full = 1300, 1200
		runs := make([]store.NewRun, 2*full)
		for i := range runs {
			runs[i] = store.NewRun{Handler: "orders", Partition: fmt.Sprintf("%04d", i%full)}
		}
		c.insertMany(len(runs), runs...)
		taken := 0
		testkit.Eventually(c, testkit.Patience, "each partition has one that runs", func() bool {
			taken += len(c.claim(request(400, perTenant(1))).Runs)
			return taken >= full
		})
		c.claims(0, request(100, perTenant(1)))
		for i := full; i < all; i++ { // after all full partitions
			c.tenants(fmt.Sprintf("%04d", i), 2)
		}
		testkit.Eventually(c, testkit.Patience, "those that are not full are found", func() bool {
			taken += len(c.claim(request(400, perTenant(1))).Runs)
			return taken >= all
		})
		c.claims(0, request(400, perTenant(1)))
		running := c.runs(store.Filter{States: []store.State{store.StateRunning}}, 2*all)
		if of := partitionsOf(running); len(of) != all || len(running) != all {
			c.Errorf("%d runs of %d partitions are running", len(running), len(of))
		}
	}},
	{"partitions/the limit holds at every instant, with many workers", func(c *check) {
		c.ready(perTenant(1))
		total := 12 * c.h.Rounds
		for range total {
			c.tenants("a", 1)
			c.tenants("b", 1)
		}
		var finished atomic.Int64
		var mu sync.Mutex
		active := map[string]int{}
		c.atOnce(4, func(i int, c *check) {
			r := request(1+i, perTenant(1))
			r.Worker = fmt.Sprint("worker", i)
			for finished.Load() < int64(2*total) && !c.Failed() {
				runs := c.claim(r).Runs
				if len(runs) == 0 {
					time.Sleep(crowdPause)
				}
				for _, run := range runs {
					mu.Lock()
					if active[run.Partition]++; active[run.Partition] > 1 {
						c.Errorf("%d of %s are running", active[run.Partition], run.Partition)
					}
					mu.Unlock()
				}
				for _, run := range runs {
					mu.Lock()
					active[run.Partition]--
					mu.Unlock()
					done, err := c.Finish(c.ctx, r.Worker, []store.Result{succeeded(run)})
					if err != nil || len(done.Counted) != 1 {
						c.Errorf("Finish: %+v, %v", done, err)
					}
					finished.Add(1)
				}
			}
		})
	}},
}

var limitsAtOnce = []promise{
	{"limits/hold at every instant, with many workers", func(c *check) {
		c.crowd(limited(3), 0, func(orders, _ int64) bool { return orders <= 3 })
	}},
	{"limits/MaxActive holds at every instant, with many workers", func(c *check) {
		c.crowd(orders, 4, func(orders, mails int64) bool { return orders+mails <= 4 })
	}},
	{"limits/both hold at every instant, with many workers", func(c *check) {
		c.crowd(limited(2), 5, func(orders, mails int64) bool { return orders <= 2 && orders+mails <= 5 })
	}},
	{"limits/an override holds at every instant, with workers without a limit", func(c *check) {
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(2)})
		c.setHandler("", store.Override{MaxConcurrency: ptr(3)})
		c.crowd(orders, 0, func(orders, mails int64) bool { return orders <= 2 && orders+mails <= 3 })
	}},
	{"limits/an override holds once SetHandler has returned", func(c *check) {
		c.ready(orders)
		for range 2 * c.h.Rounds {
			c.setHandler("orders", store.Override{MaxConcurrency: ptr(-1)})
			c.inserts("orders", 30)
			var mu sync.Mutex
			var taken []store.Result
			c.atOnce(4, func(i int, c *check) {
				if i == 0 {
					c.setHandler("orders", store.Override{MaxConcurrency: ptr(2)})
				}
				for range 6 {
					before := c.handler("orders")
					runs := c.claim(request(2, orders)).Runs
					mu.Lock()
					for _, run := range runs {
						taken = append(taken, succeeded(run))
					}
					mu.Unlock()
					if before.Override == 2 && before.Running >= 2 && len(runs) > 0 {
						c.Errorf("%d runs were claimed over the limit: %+v", len(runs), before)
					}
				}
			})
			c.finishes(taken...)
			c.setHandler("orders", store.Override{MaxConcurrency: ptr(-1)})
			c.claimRest()
		}
	}},
	{"limits/nothing starts once SetHandler has returned, without an earlier limit", func(c *check) {
		c.stops(func(c *check) { c.setHandler("orders", store.Override{MaxConcurrency: ptr(0)}) },
			func(c *check) { c.setHandler("orders", store.Override{MaxConcurrency: ptr(-1)}) })
	}},
	{"limits/nothing starts once SetHandler has returned for all handlers", func(c *check) {
		c.stops(func(c *check) { c.setHandler("", store.Override{MaxConcurrency: ptr(0)}) },
			func(c *check) { c.setHandler("", store.Override{MaxConcurrency: ptr(-1)}) })
	}},
	{"limits/nothing starts once a pause has returned", func(c *check) {
		c.stops(func(c *check) { c.setHandler("orders", store.Override{PausedUntil: ptr(time.Hour)}) },
			func(c *check) { c.setHandler("orders", store.Override{PausedUntil: ptr(time.Duration(0))}) })
	}},
}

// stops sets an override while workers empty the backlog of a handler without a limit, and fails
// the test if a run is claimed after the call has returned.
func (c *check) stops(set, reset func(*check)) {
	c.Helper()
	c.ready(orders)
	for range 2 * c.h.Rounds {
		c.inserts("orders", 46)
		var claims, then atomic.Int64
		var mu sync.Mutex
		var taken []store.Result
		c.atOnce(4, func(i int, c *check) {
			if i == 0 {
				for claims.Load() == 0 && !c.Failed() {
					time.Sleep(crowdPause)
				}
				set(c)
				then.Store(c.handler("orders").Running)
				return
			}
			for range 15 {
				runs := c.claim(request(1, orders)).Runs
				claims.Add(1)
				mu.Lock()
				for _, run := range runs {
					taken = append(taken, succeeded(run))
				}
				mu.Unlock()
			}
		})
		if is := c.handler("orders").Running; is != then.Load() {
			c.Errorf("%d runs were running when the call returned, and %d are running now", then.Load(), is)
		}
		c.finishes(taken...)
		reset(c)
		c.claimRest()
	}
}

// crowdPause is how long a worker that has found no run lets the others work.
const crowdPause = time.Millisecond

// crowd lets several workers run orders and mails, and checks how many of each are in progress.
func (c *check) crowd(orders store.Handler, maxActive int, holds func(orders, mails int64) bool) {
	c.Helper()
	c.ready(orders, mails)
	total := 12 * c.h.Rounds
	c.inserts("orders", total)
	c.inserts("mails", total)
	var finished atomic.Int64
	var mu sync.Mutex
	var active [2]int64 // orders and mails whose Claim has returned and whose Finish was not called yet
	count := func(c *check, runs []store.Run, by int64) {
		mu.Lock()
		defer mu.Unlock()
		for _, run := range runs {
			if run.Handler == "orders" {
				active[0] += by
			} else {
				active[1] += by
			}
		}
		if !holds(active[0], active[1]) {
			c.Errorf("%d orders and %d mails are running", active[0], active[1])
		}
	}
	c.atOnce(6, func(i int, c *check) {
		if i == 0 { // the first worker only looks
			for finished.Load() < int64(2*total) && !c.Failed() {
				running := map[string]int64{}
				for _, h := range c.stats().ByHandler {
					running[h.Handler] = h.Running
				}
				if !holds(running["orders"], running["mails"]) {
					c.Errorf("the database has %v running", running)
				}
				time.Sleep(crowdPause)
			}
			return
		}
		r := request(1+i%3, orders, mails)
		r.Worker, r.MaxActive = fmt.Sprint("worker", i), maxActive
		for finished.Load() < int64(2*total) && !c.Failed() {
			runs := c.claim(r).Runs
			if len(runs) == 0 {
				time.Sleep(crowdPause)
			}
			count(c, runs, 1)
			for _, run := range runs {
				count(c, []store.Run{run}, -1)
				done, err := c.Finish(c.ctx, r.Worker, []store.Result{succeeded(run)})
				if err != nil || len(done.Counted) != 1 {
					c.Errorf("Finish: %+v, %v", done, err)
				}
				finished.Add(1)
			}
		}
	})
}
