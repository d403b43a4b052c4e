package clustertest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

var records = []promise{
	{"records/a batch is counted once, however often it comes", func(c *check) {
		c.join("a")
		c.join("b")
		b := c.counted("a", 5, outcome("orders", "error", time.Hour), outcome("orders", "panic", 30*time.Minute))
		b.Host.UpFor = 2 * time.Hour
		c.write(b)
		c.write(b)
		b.Host.UpFor = 3 * time.Hour // as if the batch were sent again
		c.write(b)
		b.Number = 4
		c.write(b)
		c.hasFailures("orders", 2)
		c.hasRuns("orders", 2)
		b = c.counted("b", 1, outcome("orders", "error", time.Minute))
		c.write(b)
		c.hasFailures("orders", 3)
		b = c.counted("a", 6, outcome("orders", "error", time.Second))
		b.Host.UpFor = 4 * time.Hour
		b.Host.Left = true
		c.write(b)
		c.hasFailures("orders", 4)
		c.hasRuns("orders", 4)
		c.hasRuns("", 4)
	}},
	{"records/a batch that comes several times at once is counted once", func(c *check) {
		c.join("a")
		for i := range 5 {
			b := c.counted("a", int64(1+i), outcome("orders", "error", time.Minute))
			b.Host.UpFor = time.Duration(2+i) * time.Hour
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
					defer cancel()
					if _, err := c.Store.Write(ctx, b); err != nil {
						c.errorf("Write: %v", err)
					}
				})
			}
			all.Wait()
			c.hasFailures("orders", 1+i)
			c.hasRuns("orders", 1+i)
		}
	}},
	{"records/of hosts that write at once lose nothing", func(c *check) {
		const hosts, batches, timers = 4, 5, 7
		for i := range hosts {
			c.join(fmt.Sprint("h", i))
		}
		var all sync.WaitGroup
		for i := range hosts {
			all.Go(func() {
				for n := range batches {
					var runs []cluster.TimerRecord
					for _, k := range rand.Perm(timers) {
						runs = append(runs, outcome(fmt.Sprint("timer", k), "error", time.Hour))
					}
					b := c.counted(fmt.Sprint("h", i), int64(1+n), runs...)
					ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
					defer cancel()
					if _, err := c.Store.Write(ctx, b); err != nil {
						c.errorf("Write: %v", err)
					}
				}
			})
		}
		all.Wait()
		for k := range timers {
			c.hasFailures(fmt.Sprint("timer", k), hosts*batches)
			c.hasRuns(fmt.Sprint("timer", k), hosts*batches)
		}
		c.hasRuns("", hosts*batches*timers)
	}},
	{"records/nothing is counted without a row of the host", func(c *check) {
		b := c.counted("a", 1, outcome("orders", "error", time.Minute))
		if w, _ := c.writeTo(c.Store, b); !w.HostUnknown {
			c.errorf("no HostUnknown, though there is no row")
		}
		c.hasFailures("orders", 0)
		host := b.Host
		b.Host = nil
		c.write(b)
		c.hasFailures("orders", 0)
		b.Host = host
		h := heartbeat("a")
		b.Host.Detail = h.Detail
		c.write(b) // creates the row
		c.hasFailures("orders", 0)
		c.hasRuns("orders", 0)
		b.Host.Detail = nil
		c.write(b)
		c.hasFailures("orders", 1)
		c.hasRuns("orders", 1)
	}},
	{"records/a batch that was overtaken, or has no number, counts nothing", func(c *check) {
		c.join("a")
		b := c.counted("a", 2, outcome("orders", "error", time.Minute))
		b.Host.UpFor = 3 * time.Hour
		c.write(b)
		late := c.counted("a", 3, outcome("orders", "error", time.Minute))
		late.Host.UpFor = 2 * time.Hour
		c.write(late)
		late.Number, late.Host.UpFor = 0, 4*time.Hour
		c.write(late)
		c.hasFailures("orders", 1)
		c.hasRuns("orders", 1)
	}},
	{"records/are merged by when runs ended", func(c *check) {
		c.join("a")
		// The runs ended hours ago and hours apart, so the duration of the test cannot change their
		// order.
		outcomes := []string{"ok", "ok", "error", "panic", "timeout", "lease_lost", "of the user's own"}
		for i := range 6 {
			timer, number := fmt.Sprint("timer", i), int64(100*i)
			var want *cluster.TimerRecord
			var steps []string
			agos := rand.Perm(1000)
			for range 8 {
				var batch []cluster.TimerRecord
				for range 1 + rand.IntN(4) {
					o := outcomes[rand.IntN(2+rand.IntN(len(outcomes)-1))]
					one := outcome(timer, o, time.Duration(1+agos[0])*time.Hour)
					agos = agos[1:]
					batch = append(batch, one)
					steps = append(steps, fmt.Sprintf("%s %v", o, one.Last.EndedAgo))
				}
				steps = append(steps, "|")
				number++
				b := c.counted("a", number, batch...)
				c.write(b)
				merged := b.Timers[0]
				if want != nil {
					merged = cluster.Merge(*want, merged)
				}
				want = &merged
				c.sameRecord(strings.Join(steps, ", "), c.record(timer), *want)
			}
		}
	}},
	{"records/have the run that ended last", func(c *check) {
		c.join("a")
		r := outcome("orders", "error", time.Hour)
		r.Last = run("x", "orders", time.Hour)
		c.write(c.counted("a", 1, r))
		got := c.record("orders").Last
		r.Last.ID, got.ID = "", ""
		c.near("EndedAgo", got.EndedAgo, time.Hour)
		if !got.Tick.Equal(r.Last.Tick) {
			c.errorf("Tick %v, want %v", got.Tick, r.Last.Tick)
		}
		got.EndedAgo, got.Tick = r.Last.EndedAgo, r.Last.Tick
		c.same("run", got, r.Last)
	}},
	{"records/are kept apart by name", func(c *check) {
		c.join("a")
		names := []string{"orders", "Orders", "orders ", "orders:5", strings.Repeat("x", 250), strings.Repeat("x", 251),
			strings.Repeat("🦊", 60)}
		var all []cluster.TimerRecord
		for i, name := range names {
			for range 1 + i {
				all = append(all, outcome(name, "error", time.Hour))
			}
		}
		c.write(c.counted("a", 1, all...))
		for i, name := range names {
			c.hasFailures(name, 1+i)
			c.hasRuns(name, 1+i)
		}
		if rows, _ := c.readFrom(c.Other, everything); len(rows.Timers) != 0 {
			c.errorf("the other registry has %+v", rows.Timers)
		}
	}},
	{"records/that fail come first, then those that ran last, as many as asked for", func(c *check) {
		c.join("a")
		const n = 10
		var all []cluster.TimerRecord
		for _, i := range rand.Perm(n) {
			o := "ok"
			if i < n/2 {
				o = "error"
			}
			all = append(all, outcome(fmt.Sprint(i), o, time.Duration(1+i)*time.Hour))
		}
		c.write(c.counted("a", 1, all...))
		for _, limit := range []int{0, 1, 3, n - 1, n, 2 * n} {
			rows, _ := c.readFrom(c.Store, cluster.Query{Timers: limit})
			var names, want []string
			for _, t := range rows.Timers {
				names = append(names, t.Last.Timer)
			}
			for i := range min(limit, n) {
				want = append(want, fmt.Sprint(i))
			}
			slices.Sort(names)
			c.same(fmt.Sprintf("%d timers", limit), names, want)
			if len(rows.Runs)+len(rows.Events) != 0 {
				c.errorf("%d runs and %d events that nobody asked for", len(rows.Runs), len(rows.Events))
			}
		}
	}},
	{"records/buckets add up", func(c *check) {
		c.join("a")
		w := c.counted("a", 0)
		now := c.clock(w)
		inBin := func(bin int, timer string, width time.Duration, back, runs int) cluster.Bucket {
			start := now().UnixMicro()/width.Microseconds() - int64(back)
			middle := time.UnixMicro(start * width.Microseconds()).Add(width / 2)
			return cluster.Bucket{Timer: timer, Interval: width, Bin: bin, Ago: now().Sub(middle), Runs: runs,
				Failed: runs - 1, Took: time.Duration(runs) * 1500 * time.Microsecond,
				LongestTook: time.Duration(runs) * time.Millisecond}
		}
		in := func(timer string, width time.Duration, back, runs int) cluster.Bucket {
			return inBin(0, timer, width, back, runs)
		}
		const fine, coarse = cluster.FineBucket, cluster.CoarseBucket
		for i, list := range [][]cluster.Bucket{
			{in("orders", fine, 3, 2), in("orders", fine, 2, 1), in("orders", coarse, 3, 3), in("", fine, 3, 3)},
			{in("orders", fine, 3, 4), in("orders", coarse, 3, 2), in("other", fine, 3, 1), in("", fine, 3, 4)},
			{inBin(2, "mail", fine, 3, 4), inBin(12, "mail", fine, 3, 1), inBin(2, "mail", coarse, 3, 2)},
			{inBin(2, "mail", fine, 3, 2), inBin(1, "mail", fine, 3, 3), inBin(2, "mail", coarse, 3, 3)},
		} {
			b := c.counted("a", int64(1+i))
			b.Buckets = list
			c.write(b)
		}
		for timer, want := range map[string][]cluster.Bucket{
			"orders": {in("orders", fine, 3, 6), in("orders", fine, 2, 1), in("orders", coarse, 3, 5)},
			"other":  {in("other", fine, 3, 1)}, "none": nil, "": {in("", fine, 3, 7)},
			"mail": {inBin(1, "mail", fine, 3, 3), inBin(2, "mail", fine, 3, 6), inBin(12, "mail", fine, 3, 1),
				inBin(2, "mail", coarse, 3, 5)},
		} {
			got := c.buckets(timer)
			slices.SortFunc(got, func(a, b cluster.Bucket) int {
				return cmp.Or(int(a.Interval-b.Interval)+int(b.Ago-a.Ago)/int(time.Second), a.Bin-b.Bin)
			})
			if len(got) != len(want) {
				c.fatalf("%q: %d buckets, want %d: %+v", timer, len(got), len(want), got)
			}
			for i, g := range got {
				w := want[i]
				c.near("Ago", g.Ago, w.Ago+w.Interval/2)
				g.Ago = w.Ago
				switch w.Runs { // buckets with runs from two batches
				case 6:
					w.Failed, w.LongestTook = 4, 4*time.Millisecond
				case 5:
					w.Failed, w.LongestTook = 3, 3*time.Millisecond
				case 7:
					w.Failed, w.LongestTook = 5, 4*time.Millisecond
				}
				c.same("bucket", g, w)
			}
		}
	}},
	{"records/go when their last run is old, and buckets by their age", func(c *check) {
		c.join("a")
		b := c.counted("a", 1, outcome("old", "error", 3*time.Hour), outcome("new", "error", time.Minute))
		b.Buckets = nil
		for _, width := range []time.Duration{cluster.FineBucket, cluster.CoarseBucket} {
			for i, days := range []time.Duration{0, 23, 26, 30 * 24, 33 * 24} {
				b.Buckets = append(b.Buckets, cluster.Bucket{Timer: "x", Interval: width, Ago: days * time.Hour,
					Runs: 1 + i})
			}
		}
		c.write(b)
		keep := cluster.Retention{Hosts: 1000 * time.Hour, Leases: time.Hour, Events: time.Hour, Runs: 2 * time.Hour}
		if deleted := c.sweep(keep, 1); deleted < 2 {
			c.errorf("Sweep says %d, want a record and a bucket at least", deleted)
		}
		for range 5 {
			c.sweep(keep, 100)
		}
		c.hasFailures("old", 0)
		c.hasFailures("new", 1)
		got := map[time.Duration][]int{}
		for _, b := range c.buckets("x") {
			got[b.Interval] = append(got[b.Interval], b.Runs)
		}
		for _, list := range got {
			slices.Sort(list)
		}
		c.same("buckets", got, map[time.Duration][]int{cluster.FineBucket: {1, 2}, cluster.CoarseBucket: {1, 2, 3, 4}})
		if deleted := c.sweep(keep, 100); deleted != 0 {
			c.errorf("Sweep says %d when nothing is old", deleted)
		}
	}},
}

// outcome returns the record of one run with the given outcome.
func outcome(timer, outcome string, ago time.Duration) cluster.TimerRecord {
	r := run("", timer, ago)
	r.Outcome = outcome
	one := cluster.TimerRecord{Last: r, Outcomes: "?"}
	for letter := byte('a'); letter <= 'z'; letter++ {
		if cluster.OutcomeOf(letter) == outcome {
			one.Outcomes = string(letter)
		}
	}
	if outcome == "ok" {
		one.SucceededAgo = &ago
	} else {
		one.Failures, one.FailingFor, one.FailedAgo = 1, ago, ago
	}
	return one
}

// join writes a first heartbeat of a host, which creates its row.
func (c *check) join(host string) {
	h := heartbeat(host)
	h.UpFor = time.Minute
	c.write(cluster.Batch{Host: &h})
}

// counted returns a batch whose runs are counted, with a bucket for each timer. The host must
// already have a row.
func (c *check) counted(host string, number int64, runs ...cluster.TimerRecord) cluster.Batch {
	h := heartbeat(host)
	h.Detail = nil
	b := cluster.Batch{Host: &h, Number: number}
	slices.SortStableFunc(runs, func(a, b cluster.TimerRecord) int {
		return strings.Compare(a.Last.Timer, b.Last.Timer)
	})
	for _, r := range runs {
		n := len(b.Timers) - 1
		if n < 0 || b.Timers[n].Last.Timer != r.Last.Timer {
			b.Timers = append(b.Timers, r)
			b.Buckets = append(b.Buckets, cluster.Bucket{Timer: r.Last.Timer, Interval: cluster.FineBucket})
			n++
		} else {
			b.Timers[n] = cluster.Merge(b.Timers[n], r)
		}
		b.Buckets[n].Runs++
	}
	if len(runs) > 0 {
		b.Buckets = append(b.Buckets, cluster.Bucket{Interval: cluster.FineBucket, Runs: len(runs)})
	}
	return b
}

// clock writes a batch and returns a function that reads the store's time.
func (c *check) clock(b cluster.Batch) func() time.Time {
	w, at := c.writeTo(c.Store, b)
	if w.At.IsZero() {
		return time.Now
	}
	return func() time.Time { return w.At.Add(time.Since(at.to)) }
}

func (c *check) record(timer string) cluster.TimerRecord {
	rows, _ := c.read()
	var found []cluster.TimerRecord
	for _, t := range rows.Timers {
		if t.Last.Timer == timer {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return cluster.TimerRecord{}
	case 1:
		return found[0]
	}
	c.fatalf("%d records of %q: %+v", len(found), timer, found)
	panic("unreachable")
}

func (c *check) buckets(timer string) []cluster.Bucket {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	list, err := c.Store.Buckets(ctx, timer)
	if err != nil {
		c.fatalf("Buckets: %v", err)
	}
	return list
}

func (c *check) hasFailures(timer string, want int) {
	if got := c.record(timer).Failures; got != want {
		c.errorf("%.20q: %d failures, want %d", timer, got, want)
	}
}

func (c *check) hasRuns(timer string, want int) {
	got := 0
	for _, b := range c.buckets(timer) {
		got += b.Runs
	}
	if got != want {
		c.errorf("%.20q: %d runs in buckets, want %d", timer, got, want)
	}
}

// near checks a duration that may have grown since the test began.
func (c *check) near(what string, got, want time.Duration) {
	if d := got - want; d < -c.slack || d > callTimeout {
		c.errorf("%s: %v, want %v", what, got, want)
	}
}

func (c *check) sameRecord(what string, got, want cluster.TimerRecord) {
	c.near(what+": Last", got.Last.EndedAgo, want.Last.EndedAgo)
	if got.Failures != want.Failures || got.Outcomes != want.Outcomes || got.Last.Outcome != want.Last.Outcome ||
		(got.SucceededAgo == nil) != (want.SucceededAgo == nil) {
		c.fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
	if got.SucceededAgo != nil {
		c.near(what+": SucceededAgo", *got.SucceededAgo, *want.SucceededAgo)
	}
	if got.Failures > 0 {
		c.near(what+": FailingFor", got.FailingFor, want.FailingFor)
		c.near(what+": FailedAgo", got.FailedAgo, want.FailedAgo)
	}
}
