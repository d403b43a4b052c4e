package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// A call invokes one method of a Store.
type call struct {
	name string
	make func(ctx context.Context) error
}

func (c *check) every(b cluster.Batch) []call {
	return []call{
		{"Write", func(ctx context.Context) error { _, err := c.Store.Write(ctx, b); return err }},
		{"Read", func(ctx context.Context) error { _, err := c.Store.Read(ctx, everything); return err }},
		{"Runs", func(ctx context.Context) error { _, err := c.Store.Runs(ctx, "orders"); return err }},
		{"Buckets", func(ctx context.Context) error { _, err := c.Store.Buckets(ctx, "orders"); return err }},
		{"Sweep", func(ctx context.Context) error { _, err := c.Store.Sweep(ctx, forever, 1000); return err }},
	}
}

// batch returns a batch that contains rows of every kind.
func batch(host string, leases, events, runs int) cluster.Batch {
	h := heartbeat(host)
	b := cluster.Batch{Host: &h}
	for i := range leases {
		b.Leases = append(b.Leases, leaseRecord(fmt.Sprint("lease", i), host))
	}
	for i := range events {
		b.Events = append(b.Events, event(fmt.Sprint("event", i, host), time.Duration(i)*time.Second))
	}
	for i := range runs {
		b.Runs = append(b.Runs, run(fmt.Sprint("run", i, host), "orders", time.Duration(i)*time.Second))
	}
	return b
}

var calls = []promise{
	{"calls/an empty registry has nothing", func(c *check) {
		c.nothingLeft()
		if runs, _ := c.runs("orders"); len(runs) != 0 {
			c.errorf("%d runs", len(runs))
		}
		if deleted := c.sweep(cluster.Retention{}, 10); deleted != 0 {
			c.errorf("Sweep says %d", deleted)
		}
	}},
	{"calls/an empty batch writes nothing", func(c *check) {
		if w, _ := c.writeTo(c.Store, cluster.Batch{}); w.HostUnknown {
			c.errorf("HostUnknown without a host")
		}
		c.nothingLeft()
	}},
	{"calls/tell the store's time, or none", func(c *check) {
		first, from := c.writeTo(c.Store, batch("a", 1, 1, 1))
		time.Sleep(10 * time.Millisecond)
		second, to := c.writeTo(c.Store, cluster.Batch{Host: batch("b", 0, 0, 0).Host})
		if first.At.IsZero() != second.At.IsZero() {
			c.errorf("one call tells the time, and another does not: %v, %v", first.At, second.At)
		}
		if !first.At.IsZero() {
			c.ago("time between two calls", second.At.Sub(first.At), 0, from, to)
		}
	}},
	{"calls/do not reach the other registry", func(c *check) {
		c.write(batch("a", 3, 3, 3))
		rows, _ := c.readFrom(c.Other, everything)
		if n := len(rows.Hosts) + len(rows.Leases) + len(rows.Events) + len(rows.Runs); n != 0 {
			c.errorf("the other registry has %d rows", n)
		}
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		defer cancel()
		if runs, err := c.Other.Runs(ctx, "orders"); err != nil || len(runs) != 0 {
			c.errorf("the other registry has %d runs: %v", len(runs), err)
		}
		again := heartbeat("a")
		again.Detail = nil
		if w, _ := c.writeTo(c.Other, cluster.Batch{Host: &again}); !w.HostUnknown {
			c.errorf("the other registry knows the host")
		}
		c.writeTo(c.Other, batch("a", 1, 1, 1)) // with the same IDs
		if rows, _ := c.readFrom(c.Other, everything); len(rows.Events) != 1 || len(rows.Runs) != 1 {
			c.errorf("the other registry has %d events and %d runs, want 1 each", len(rows.Events), len(rows.Runs))
		}
		if deleted, err := c.Other.Sweep(ctx, cluster.Retention{}, 10); err != nil || deleted > 3 {
			c.errorf("sweeping the other registry: %d rows, %v", deleted, err)
		}
		if rows, _ := c.read(); len(rows.Hosts) != 1 || len(rows.Leases) != 3 || len(rows.Events) != 3 ||
			len(rows.Runs) != 3 {
			c.errorf("%d hosts, %d leases, %d events, %d runs, want 1, 3, 3, 3", len(rows.Hosts), len(rows.Leases),
				len(rows.Events), len(rows.Runs))
		}
	}},
	{"calls/a context that has ended", func(c *check) {
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		late, cancel := context.WithDeadline(c.ctx, time.Now().Add(-time.Second))
		defer cancel()
		for _, call := range c.every(batch("a", 1, 1, 1)) {
			if err := call.make(ended); !errors.Is(err, context.Canceled) {
				c.errorf("%s with a canceled context: %v", call.name, err)
			}
			if err := call.make(late); !errors.Is(err, context.DeadlineExceeded) {
				c.errorf("%s after its deadline: %v", call.name, err)
			}
		}
		c.nothingLeft()
	}},
	{"calls/take one round trip", func(c *check) {
		if c.RoundTrips == nil {
			c.skip("the harness does not count round trips")
		}
		for _, b := range []cluster.Batch{batch("a", 1, 1, 1), batch("b", cluster.MaxBatch, 300, 100)} {
			for _, call := range c.every(b) { // warm-up: prepares statements and loads scripts
				c.trips(call)
			}
			for _, call := range c.every(b) {
				if n := c.trips(call); n != 1 {
					c.errorf("%s takes %d round trips, with %d leases", call.name, n, len(b.Leases))
				}
			}
		}
	}},
	{"calls/end with their context when the server hangs", func(c *check) {
		if c.Hang == nil {
			c.skip("the harness cannot make the server hang")
		}
		b := batch("a", 3, 3, 3)
		c.write(b)
		resume := sync.OnceFunc(c.Hang())
		defer resume()
		for _, call := range c.every(b) {
			const limit = 300 * time.Millisecond
			ctx, cancel := context.WithTimeout(c.ctx, limit)
			defer cancel()
			var err error
			at := during(func() { err = call.make(ctx) })
			if err == nil {
				c.errorf("%s of a server that hangs: no error", call.name)
			}
			if took := at.to.Sub(at.from); took > limit+2*time.Second { // margin for a busy machine
				c.errorf("%s returns %v after its start: its context had %v", call.name, took, limit)
			}
		}
		resume()
		c.write(b)
		if rows, _ := c.read(); len(rows.Hosts) != 1 || len(rows.Leases) != 3 || len(rows.Events) != 3 ||
			len(rows.Runs) != 3 {
			c.errorf("after a server hung: %d hosts, %d leases, %d events, %d runs, want 1, 3, 3, 3", len(rows.Hosts),
				len(rows.Leases), len(rows.Events), len(rows.Runs))
		}
	}},
}

func (c *check) trips(call call) int64 {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	before := c.RoundTrips()
	if err := call.make(ctx); err != nil {
		c.errorf("%s: %v", call.name, err)
	}
	return c.RoundTrips() - before
}

var crowds = []promise{
	{"crowds/a thousand hosts", func(c *check) {
		const n, writers = 1000, 8
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := w; i < n; i += writers {
					h := heartbeat(fmt.Sprint("host", i))
					c.try(cluster.Batch{Host: &h})
				}
			})
		}
		all.Wait()
		rows, _ := c.read()
		seen := map[string]bool{}
		for _, h := range rows.Hosts {
			seen[h.Holder.Host] = true
		}
		if len(rows.Hosts) != n || len(seen) != n {
			c.errorf("%d rows of %d hosts, want %d", len(rows.Hosts), len(seen), n)
		}
	}},
	{"crowds/the largest batch", func(c *check) {
		const n = cluster.MaxBatch
		b := batch("a", n, n, 0)
		b.Host.Detail = []byte(`{"timers":["` + strings.Repeat("x", 25<<10) + `"]}`)
		for i := range n {
			b.Runs = append(b.Runs, run(fmt.Sprint(i), fmt.Sprint("timer", i%10), time.Duration(i)*time.Second))
		}
		c.write(b)
		c.write(b)
		rows, _ := c.read()
		if len(rows.Hosts) != 1 || len(rows.Leases) != n || len(rows.Events) != n || len(rows.Runs) != n {
			c.errorf("%d hosts, %d leases, %d events, %d runs, want 1 and %d each", len(rows.Hosts),
				len(rows.Leases), len(rows.Events), len(rows.Runs), n)
		}
	}},
	{"crowds/ten writers and a reader at once", func(c *check) {
		const writers, rounds, names = 10, 10, 5
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				h := heartbeat(fmt.Sprint("host", w))
				for i := range rounds {
					id := fmt.Sprint(i, " ", w)
					b := cluster.Batch{Host: &h, Events: []cluster.Event{event(id, 0), event("same", 0)},
						Runs: []cluster.Run{run(id, "orders", 0), run("same", "orders", 0)}}
					for n := range names {
						l := leaseRecord(fmt.Sprint("lease", (n+w)%names), h.Holder.Host) // in the writer's own order
						l.Fence = dlock.Fence(i*writers + w + 1)
						l.Grant = fmt.Sprint(l.Fence)
						b.Leases = append(b.Leases, l)
					}
					c.try(b)
				}
			})
		}
		all.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
				defer cancel()
				if _, err := c.Store.Read(ctx, everything); err != nil {
					c.errorf("Read: %v", err)
				}
			}
		})
		all.Wait()
		c.sweep(forever, 1000) // some stores trim only here
		rows, _ := c.read()
		if len(rows.Hosts) != writers || len(rows.Leases) != names || len(rows.Events) != writers*rounds+1 ||
			len(rows.Runs) != cluster.RunsPerTimer {
			c.errorf("%d hosts, %d leases, %d events, %d runs, want %d, %d, %d, %d", len(rows.Hosts), len(rows.Leases),
				len(rows.Events), len(rows.Runs), writers, names, writers*rounds+1, cluster.RunsPerTimer)
		}
		for _, l := range rows.Leases {
			if l.Fence != rounds*writers {
				c.errorf("%s has fence %d, want the highest, %d", l.Name, l.Fence, rounds*writers)
			}
		}
	}},
}

// try writes a batch. Unlike write, it may be called from any goroutine.
func (c *check) try(b cluster.Batch) {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	if w, err := c.Store.Write(ctx, b); err != nil || w.HostUnknown {
		c.errorf("Write: %+v, %v", w, err)
	}
}
