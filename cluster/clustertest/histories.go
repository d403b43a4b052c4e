package clustertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

var histories = []promise{
	{"events/are as they were written", func(c *check) {
		all := []cluster.Event{event("newer", time.Minute), event("older", 2*time.Minute)}
		all[1].Kind, all[1].Name, all[1].Slot, all[1].Fence, all[1].Text = cluster.EventHostGone, "", 0, 0, ""
		at := c.write(cluster.Batch{Events: []cluster.Event{all[1], all[0]}})
		rows, read := c.read()
		if len(rows.Events) != 2 {
			c.fatalf("%d events, want 2", len(rows.Events))
		}
		for i, got := range rows.Events {
			c.ago("Ago", got.Ago, all[i].Ago, at, read)
			got.Ago = all[i].Ago
			c.same("event", got, all[i])
		}
	}},
	{"events/come newest first, as many as asked for", func(c *check) {
		const n = 20
		for _, i := range rand.Perm(n) {
			c.write(cluster.Batch{Events: []cluster.Event{event(fmt.Sprint(i), time.Duration(1+i)*time.Hour)}})
		}
		for _, limit := range []int{0, 1, 7, n, 10 * n} {
			rows, _ := c.readFrom(c.Store, cluster.Query{Events: limit})
			c.newest("Events", limit, n, len(rows.Events), func(i int) string { return rows.Events[i].ID })
			if len(rows.Runs) != 0 {
				c.errorf("%d runs that nobody asked for", len(rows.Runs))
			}
		}
	}},
	{"events/at most MaxEvents are kept", func(c *check) {
		const extra = 30
		var batch []cluster.Event
		for _, i := range rand.Perm(cluster.MaxEvents + extra) {
			batch = append(batch, event(fmt.Sprint(i), time.Duration(1+i)*time.Minute))
		}
		for len(batch) > 0 {
			n := min(cluster.MaxBatch, len(batch))
			c.write(cluster.Batch{Events: batch[:n]})
			batch = batch[n:]
		}
		c.sweep(forever, 10*extra)
		rows, _ := c.readFrom(c.Store, cluster.Query{Events: 10 * cluster.MaxEvents})
		c.newest("Events", 10*cluster.MaxEvents, cluster.MaxEvents, len(rows.Events),
			func(i int) string { return rows.Events[i].ID })
	}},
	{"runs/are as they were written", func(c *check) {
		all := []cluster.Run{run("newer", "orders", time.Minute), run("older", "orders", 2*time.Minute)}
		all[0].Outcome, all[0].Stack = "panic", "goroutine 7 [running]:\nmain.feed(\"ä\")\n\t/src/feed.go:88 +0x1d"
		all[1].Tick, all[1].Slot, all[1].Fence, all[1].Err, all[1].By, all[1].Took = time.Time{}, -1, 0, "", "", 0
		at := c.write(cluster.Batch{Runs: []cluster.Run{all[1], all[0]}})
		rows, read := c.read()
		c.sameRuns(rows.Runs, all, at, read)
		runs, read := c.runs("orders")
		c.sameRuns(runs, all, at, read)
	}},
	{"runs/come newest first, of one timer and of all", func(c *check) {
		const n = 20
		for _, i := range rand.Perm(n) {
			timer := fmt.Sprint("timer", i%2)
			c.write(cluster.Batch{Runs: []cluster.Run{run(fmt.Sprint(i), timer, time.Duration(1+i)*time.Hour)}})
		}
		for _, limit := range []int{0, 1, 7, n, 10 * n} {
			rows, _ := c.readFrom(c.Store, cluster.Query{Runs: limit})
			c.newest("Runs", limit, n, len(rows.Runs), func(i int) string { return rows.Runs[i].ID })
			if len(rows.Events) != 0 {
				c.errorf("%d events that nobody asked for", len(rows.Events))
			}
		}
		runs, _ := c.runs("timer0")
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		c.same("IDs of timer0", ids, []string{"0", "2", "4", "6", "8", "10", "12", "14", "16", "18"})
		if runs, _ := c.runs("timer"); len(runs) != 0 {
			c.errorf("%d runs of a timer that has none", len(runs))
		}
	}},
	{"runs/at most RunsPerTimer of each timer are kept", func(c *check) {
		const extra = 15
		var batch []cluster.Run
		for _, i := range rand.Perm(cluster.RunsPerTimer + extra) {
			batch = append(batch, run(fmt.Sprint(i), "busy", time.Duration(1+i)*time.Minute))
		}
		batch = append(batch, run("seldom", "seldom", 24*time.Hour))
		c.write(cluster.Batch{Runs: batch[:30]})
		c.write(cluster.Batch{Runs: batch[30:]})
		runs, _ := c.runs("busy")
		c.newest("Runs", cluster.RunsPerTimer, cluster.RunsPerTimer, len(runs),
			func(i int) string { return runs[i].ID })
		c.sweep(forever, 10*extra)
		rows, _ := c.read()
		if len(rows.Runs) != cluster.RunsPerTimer+1 || rows.Runs[len(rows.Runs)-1].ID != "seldom" {
			c.errorf("%d runs, want %d of one timer and the one of the other", len(rows.Runs), cluster.RunsPerTimer)
		}
	}},
	{"histories/what is repeated is there once, as it was first", func(c *check) {
		b := cluster.Batch{Events: []cluster.Event{event("x", time.Minute), event("y", 0)},
			Runs: []cluster.Run{run("x", "orders", time.Minute), run("y", "orders", 0)}}
		at := c.write(b)
		c.write(b)
		b.Events[0].Ago, b.Runs[0].EndedAgo = time.Hour, time.Hour // as if the batch were sent again much later
		c.write(b)
		rows, read := c.read()
		if len(rows.Events) != 2 || len(rows.Runs) != 2 {
			c.fatalf("%d events and %d runs, want 2 each", len(rows.Events), len(rows.Runs))
		}
		c.ago("Ago", rows.Events[1].Ago, time.Minute, at, read)
		c.ago("EndedAgo", rows.Runs[1].EndedAgo, time.Minute, at, read)
		if runs, _ := c.runs("orders"); len(runs) != 2 {
			c.errorf("%d runs, want 2", len(runs))
		}
	}},
}

// newest checks that the rows have the IDs 0, 1, … in this order, and that there are as many as
// asked for, or all if fewer exist.
func (c *check) newest(what string, asked, have, got int, id func(int) string) {
	if want := min(asked, have); got != want {
		c.errorf("%s: %d rows of %d when %d are asked for, want %d", what, got, have, asked, want)
	}
	for i := range got {
		if id(i) != fmt.Sprint(i) {
			c.errorf("%s: row %d has ID %s: not newest first", what, i, id(i))
			return
		}
	}
}

func (c *check) sameRuns(got, want []cluster.Run, written, read span) {
	if len(got) != len(want) {
		c.fatalf("%d runs, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		c.ago("EndedAgo", g.EndedAgo, w.EndedAgo, written, read)
		if !g.Tick.Equal(w.Tick) || g.Tick.IsZero() != w.Tick.IsZero() {
			c.errorf("Tick %v, want %v", g.Tick, w.Tick)
		}
		g.EndedAgo, g.Tick = w.EndedAgo, w.Tick
		c.same("run", g, w)
	}
}
