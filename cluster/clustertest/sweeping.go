package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

// forever is a retention long enough to keep every row that a test writes.
var forever = cluster.Retention{Hosts: 1000 * time.Hour, Leases: 1000 * time.Hour, Events: 1000 * time.Hour,
	Runs: 1000 * time.Hour}

var sweeping = []promise{
	{"sweeping/hosts go after their retention and three TTLs", func(c *check) {
		const ttl = 200 * time.Millisecond
		short, long := heartbeat("short"), heartbeat("long")
		short.TTL = ttl
		c.write(cluster.Batch{Host: &long})
		written := c.write(cluster.Batch{Host: &short})
		brief := forever
		brief.Hosts = time.Microsecond
		for {
			deleted := 0
			swept := during(func() { deleted = c.sweep(brief, 10) })
			if passed := swept.to.Sub(written.from); deleted > 0 && passed < 3*ttl-c.slack {
				c.errorf("a host with a TTL of %v was swept within %v", ttl, passed)
			}
			if deleted > 0 {
				break
			}
			if swept.from.Sub(written.to) > callTimeout {
				c.fatalf("a host with a TTL of %v is still there", ttl)
			}
			time.Sleep(10 * time.Millisecond)
		}
		c.sameHost(c.host(), long)
		again := short
		again.Detail = nil
		if w, _ := c.writeTo(c.Store, cluster.Batch{Host: &again}); !w.HostUnknown {
			c.errorf("a host that was swept is not HostUnknown")
		}
		short.TTL = time.Millisecond
		c.write(cluster.Batch{Host: &short})
		time.Sleep(10 * time.Millisecond) // ten TTLs
		if deleted := c.sweep(forever, 10); deleted != 0 {
			c.errorf("%d hosts were swept before their retention", deleted)
		}
	}},
	{"sweeping/leases go after renewal, release and end", func(c *check) {
		record := func(name string, released bool, renewedAgo, expiresIn time.Duration) cluster.LeaseRecord {
			l := leaseRecord(name, "a")
			l.Released, l.HeldFor, l.RenewedAgo, l.ExpiresIn = released, 5*time.Hour, renewedAgo, expiresIn
			return l
		}
		const h = time.Hour
		c.write(cluster.Batch{Leases: []cluster.LeaseRecord{
			record("old", false, 4*h, -2*h),
			record("old, released", true, 2*h, -2*h),
			record("ended", false, 4*h, -h/2),
			record("live", false, 4*h, h),
			record("released", true, h/2, -h/2),
			record("renewed", false, h/2, -h/4),
		}})
		r := forever
		r.Leases = h
		if deleted := c.sweep(r, 10); deleted != 2 {
			c.errorf("Sweep says %d, want 2", deleted)
		}
		rows, _ := c.read()
		var left []string
		for _, l := range rows.Leases {
			left = append(left, l.Name)
		}
		slices.Sort(left)
		c.same("leases left", left, []string{"ended", "live", "released", "renewed"})
	}},
	{"sweeping/events and runs go by their age", func(c *check) {
		c.write(cluster.Batch{
			Events: []cluster.Event{event("new", time.Minute), event("old", 3*time.Hour)},
			Runs: []cluster.Run{run("new", "a", time.Minute), run("middle", "a", 90*time.Minute),
				run("old", "a", 3*time.Hour), run("old too", "b", 4*time.Hour)},
		})
		r := forever
		r.Events, r.Runs = time.Hour, 2*time.Hour
		if deleted := c.sweep(r, 10); deleted != 3 {
			c.errorf("Sweep says %d, want 3", deleted)
		}
		rows, _ := c.read()
		if len(rows.Events) != 1 || rows.Events[0].ID != "new" {
			c.errorf("events %+v, want the new one", rows.Events)
		}
		if len(rows.Runs) != 2 || rows.Runs[0].ID != "new" || rows.Runs[1].ID != "middle" {
			c.errorf("runs %+v, want the new one and the middle one", rows.Runs)
		}
		if runs, _ := c.runs("b"); len(runs) != 0 {
			c.errorf("%d runs of a timer whose runs are old", len(runs))
		}
	}},
	{"sweeping/deletes at most its limit of each sort, and says how many", func(c *check) {
		const n, limit = 7, 3
		c.writeOld(n)
		r := cluster.Retention{Hosts: 1000 * time.Hour, Leases: time.Hour, Events: time.Hour, Runs: time.Hour}
		if deleted := c.sweep(r, limit); deleted != 3*limit {
			c.errorf("Sweep says %d, want %d", deleted, 3*limit)
		}
		rows, _ := c.read()
		if len(rows.Leases) != n-limit || len(rows.Events) != n-limit || len(rows.Runs) != n-limit {
			c.errorf("%d leases, %d events, %d runs are left, want %d each", len(rows.Leases), len(rows.Events),
				len(rows.Runs), n-limit)
		}
		total := 3 * limit
		for range n {
			total += c.sweep(r, limit)
		}
		if total != 3*n {
			c.errorf("Sweeps say %d, want %d", total, 3*n)
		}
		c.nothingLeft()
	}},
	{"sweeping/any number of hosts may sweep at once", func(c *check) {
		const n = 40
		c.writeOld(n)
		r := cluster.Retention{Hosts: 1000 * time.Hour, Leases: time.Hour, Events: time.Hour, Runs: time.Hour}
		var all sync.WaitGroup
		var mu sync.Mutex
		total := 0
		for range 5 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
				defer cancel()
				deleted, err := c.Store.Sweep(ctx, r, n)
				if err != nil {
					c.errorf("Sweep: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += deleted
			})
		}
		all.Wait()
		if total += c.sweep(r, n); total != 3*n {
			c.errorf("Sweeps say %d, want %d", total, 3*n)
		}
		c.nothingLeft()
	}},
}

// writeOld writes n leases, n events and n runs that are two hours old.
func (c *check) writeOld(n int) {
	const age = 2 * time.Hour
	var b cluster.Batch
	for i := range n {
		l := leaseRecord(fmt.Sprint("lease", i), "a")
		l.HeldFor, l.RenewedAgo, l.ExpiresIn = age, age, -age
		b.Leases = append(b.Leases, l)
		b.Events = append(b.Events, event(fmt.Sprint("event", i), age))
		b.Runs = append(b.Runs, run(fmt.Sprint("run", i), fmt.Sprint("timer", i%3), age))
	}
	c.write(b)
}

func (c *check) nothingLeft() {
	rows, _ := c.read()
	if n := len(rows.Hosts) + len(rows.Leases) + len(rows.Events) + len(rows.Runs); n != 0 {
		c.errorf("%d rows are left: %+v", n, rows)
	}
}
