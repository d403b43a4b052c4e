package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// sharing returns a claim by a worker with the given Patience, which leaves runs to other workers.
func sharing(worker string, limit int, patience time.Duration, handlers ...store.Handler) store.ClaimRequest {
	r := request(limit, handlers...)
	r.Worker, r.Patience = worker, patience
	return r
}

// workers registers workers with a handler.
func (c *check) workers(h store.Handler, names ...string) {
	c.Helper()
	for _, name := range names {
		c.call("Register", func(ctx context.Context) error {
			return c.Register(ctx, name, []store.Handler{h}, nil, true)
		})
	}
}

// takes makes a claim. It fails the test unless the claim returns want runs and reports with held
// whether runs were left to others.
func (c *check) takes(want int, held bool, request store.ClaimRequest) []store.Run {
	c.Helper()
	claimed := c.claim(request)
	if len(claimed.Runs) != want || claimed.Held != held {
		c.Fatalf("%d runs were claimed, and held is %t; want %d and %t", len(claimed.Runs), claimed.Held, want, held)
	}
	return claimed.Runs
}

// endAll finishes runs of a worker.
func (c *check) endAll(worker string, runs ...store.Run) {
	c.Helper()
	results := make([]store.Result, len(runs))
	for i, run := range runs {
		results[i] = succeeded(run)
	}
	c.call("Finish", func(ctx context.Context) error {
		done, err := c.Finish(ctx, worker, results)
		if err == nil && len(done.Counted) != len(runs) {
			err = fmt.Errorf("%d of %d count", len(done.Counted), len(runs))
		}
		return err
	})
}

var spread = []promise{
	{"spread/registered workers share the runs that are due now", func(c *check) {
		h := limited(5)
		c.workers(h, "a", "b", "c")
		c.inserts("orders", 20)
		runs := c.takes(2, true, sharing("a", 10, time.Hour, h))
		c.takes(0, true, sharing("a", 10, time.Hour, h))
		c.takes(2, true, sharing("b", 10, time.Hour, h)) // c has no run yet
		c.takes(1, false, sharing("c", 10, time.Hour, h))
		c.takes(0, false, sharing("c", 10, time.Hour, h)) // the limit is reached
		c.endAll("a", runs...)
		c.takes(1, true, sharing("c", 10, time.Hour, h))
		c.takes(1, false, sharing("a", 10, time.Hour, h))
		c.takes(4, false, sharing("d", 4, 0, store.Handler{Name: "orders", MaxAttempts: 3})) // no limit, no shares
	}},
	{"spread/no run is kept for workers that do not ask", func(c *check) {
		h := limited(4)
		c.workers(h, "a", "b")
		c.inserts("orders", 10)
		c.takes(2, true, sharing("a", 10, time.Hour, h))
		c.pass(c.now().Add(2 * short))
		c.takes(2, false, sharing("a", 10, short, h)) // b was registered, but has not claimed
	}},
	{"spread/a worker that asks and has room gets its share of a backlog", func(c *check) {
		h := limited(4)
		c.workers(h, "a", "b")
		c.inserts("orders", 20)
		c.pass(c.now().Add(2 * short))
		runs := c.takes(4, false, sharing("a", 10, short, h))
		c.takes(0, false, sharing("b", 10, time.Hour, h)) // b finds no run
		c.endAll("a", runs[:3]...)
		c.takes(1, true, sharing("a", 10, time.Hour, h))
		c.takes(1, false, sharing("b", 1, time.Hour, h))
		// b is full now, so it no longer asks for runs, but it is registered.
		c.takes(0, true, sharing("a", 10, time.Hour, h))
		c.takes(1, false, sharing("a", 10, short, h))
		// b claims again and then is gone.
		c.takes(0, false, sharing("b", 10, short, h))
		c.endAll("a", runs[3])
		c.takes(0, true, sharing("a", 10, time.Hour, h))
		c.pass(c.now().Add(2 * short))
		c.takes(1, false, sharing("a", 10, short, h))
	}},
	{"spread/the share follows an override", func(c *check) {
		c.ready(orders)
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(6)})
		c.inserts("orders", 20)
		runs := c.takes(6, false, sharing("a", 10, time.Hour, orders))
		c.takes(0, false, sharing("b", 10, time.Hour, orders))
		c.endAll("a", runs...)
		c.takes(3, true, sharing("a", 10, time.Hour, orders))
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(2)})
		c.takes(0, false, sharing("a", 10, time.Hour, orders))
		c.takes(0, false, sharing("b", 10, time.Hour, orders))
	}},
	{"spread/a hundred workers", func(c *check) {
		h := limited(100)
		names := make([]string, 100)
		for i := range names {
			names[i] = fmt.Sprint("worker", i)
		}
		c.workers(h, names...)
		c.inserts("orders", 10)
		c.takes(2, true, sharing(names[99], 10, time.Hour, h)) // shares as if there were 64 workers
		c.takes(2, true, sharing(names[0], 10, time.Hour, h))
	}},
}
