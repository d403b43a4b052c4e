package storetest

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// tick returns a run of a schedule.
func tick(of store.Schedule, at time.Time) store.NewRun {
	return store.NewRun{Handler: of.Handler, Schedule: of.Name, DueAt: at, RunAt: at}
}

// plan returns a plan for the due tick, with the next tick a minute later.
func plan(due store.DueSchedule, runs ...store.NewRun) store.Plan {
	return store.Plan{Schedule: due, Handler: "orders", Runs: runs, Last: due.NextDueAt,
		Next: due.NextDueAt.Add(time.Minute)}
}

var planning = []promise{
	{"planning/Due returns due and new schedules, and the earliest tick of the others", func(c *check) {
		now := c.now()
		past, soon, later := now.Add(-time.Minute), now.Add(time.Hour), now.Add(2*time.Hour)
		for name, next := range map[string]time.Time{"past": past, "soon": soon, "later": later, "over": {}} {
			c.planned(store.Schedule{Name: name, Handler: "orders", Spec: "1"}, next)
		}
		c.register(true, nil, store.Schedule{Name: "new", Handler: "orders", Spec: "1"})
		c.setSchedule("past", store.Override{PausedUntil: ptr(time.Hour)})
		due := c.due()
		if len(due.Schedules) != 2 || !due.Next.Equal(soon) || due.Now.Before(now) {
			c.Fatalf("%+v", due)
		}
		d := c.dueSchedule("past")
		if !d.NextDueAt.Equal(past) || !d.PausedUntil.After(now) || d.Spec != "1" || d.NextSpec != "1" {
			c.Errorf("%+v", d)
		}
		c.setSchedule("past", store.Override{PausedUntil: ptr(time.Duration(0))})
		if c.dueSchedule("past").PausedUntil.After(c.now()) || !c.dueSchedule("new").PausedUntil.IsZero() {
			c.Error("one of the two schedules is paused")
		}
	}},
	{"planning/Due has pages: new schedules by name, then due ones, oldest first", func(c *check) {
		now := c.now()
		for i, name := range []string{"d", "b", "c", "a"} {
			c.planned(store.Schedule{Name: name, Handler: "orders", Spec: "1"},
				now.Add(time.Duration(i/2-9)*time.Minute))
		}
		c.planned(store.Schedule{Name: "later", Handler: "orders", Spec: "1"}, now.Add(time.Hour))
		c.register(true, nil, store.Schedule{Name: "z", Handler: "orders", Spec: "1"},
			store.Schedule{Name: "y", Handler: "orders", Spec: "1"},
			store.Schedule{Name: "c", Handler: "orders", Spec: "2"})
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			var names string
			var after store.DueSchedule
			for {
				due := c.duePage(after, limit)
				if !due.Next.Equal(now.Add(time.Hour)) || len(due.Schedules) > limit {
					c.Fatalf("limit %d: %+v", limit, due)
				}
				for _, d := range due.Schedules {
					names, after = names+d.Name, d
				}
				if len(due.Schedules) < limit {
					break
				}
			}
			if names != "cyzbda" {
				c.Errorf("limit %d: %q", limit, names)
			}
		}
	}},
	{"planning/a plan inserts runs, moves the schedule forward, and counts its ticks", func(c *check) {
		at := c.now().Add(-time.Minute)
		c.planned(daily, at)
		run := tick(daily, at)
		run.Priority, run.Payload, run.MaxAttempts = 1, []byte("{}"), 7
		run.By = store.Cause{By: "a schedule", Note: "due"}
		second := tick(daily, at.Add(time.Second))
		second.Backfill = true
		p := plan(c.dueSchedule("daily"), run, second)
		p.Last, p.Coalesced, p.Skipped, p.PausedTicks = at.Add(3*time.Second), 5, 6, 7
		want := store.Materialized{Schedule: "daily", Queued: 2, Coalesced: 5, Skipped: 6, PausedTicks: 7}
		if done := c.materialize(p); len(done) != 1 || done[0] != want {
			c.Fatalf("%+v, want %+v", done, want)
		}
		row := c.schedule("daily")
		if row.Queued != 2 || row.Coalesced != 5 || row.Skipped != 6 || row.PausedTicks != 7 ||
			!row.NextDueAt.Equal(p.Next) || !row.LastDueAt.Equal(p.Last) {
			c.Errorf("%+v", row)
		}
		runs := c.runs(store.Filter{Schedule: "daily"}, 10)
		if len(runs) != 2 || !runs[0].DueAt.Equal(second.DueAt) || !runs[0].Backfill {
			c.Fatalf("%+v", runs)
		}
		got, _ := c.run(runs[1].ID)
		if got.State != store.StateQueued || got.Handler != "orders" || got.Schedule != "daily" ||
			!got.DueAt.Equal(at) || !got.RunAt.Equal(at) || got.Priority != 1 || got.Backfill || got.Attempt != 0 ||
			!bytes.Equal(got.Payload, run.Payload) || got.By != run.By || got.CreatedAt.IsZero() {
			c.Errorf("%+v", got)
		}
		if claimed := c.claims(2, request(10, orders)); claimed[1].MaxAttempts != 7 || claimed[0].MaxAttempts != 3 {
			c.Errorf("%+v", claimed)
		}
		if due := c.due(); len(due.Schedules) != 1 && due.Next.IsZero() {
			c.Errorf("%+v", due)
		}
	}},
	{"planning/a second plan adds to the counts", func(c *check) {
		at := c.now().Add(-time.Hour)
		c.planned(daily, at)
		for i := range int64(3) {
			p := plan(c.dueSchedule("daily"))
			p.Skipped, p.PausedTicks, p.Coalesced = i, 2*i, 3*i
			c.materialize(p)
		}
		row := c.schedule("daily")
		if row.Skipped != 3 || row.PausedTicks != 6 || row.Coalesced != 9 || row.Queued != 0 {
			c.Errorf("%+v", row)
		}
	}},
	{"planning/a plan without a last tick keeps the earlier last tick", func(c *check) {
		at := c.now().Add(-time.Minute)
		c.planned(daily, at)
		c.materialize(plan(c.dueSchedule("daily"), tick(daily, at)))
		c.register(true, nil, store.Schedule{Name: "daily", Handler: "orders", Spec: "2"})
		p := plan(c.dueSchedule("daily"))
		p.Last, p.Next = time.Time{}, time.Time{}
		if done := c.materialize(p); len(done) != 1 {
			c.Errorf("%+v", done)
		}
		row := c.schedule("daily")
		if !row.LastDueAt.Equal(at) || !row.NextDueAt.IsZero() {
			c.Errorf("%+v", row)
		}
		if d := c.due(); len(d.Schedules) != 0 || !d.Next.IsZero() {
			c.Errorf("a schedule whose last tick is over is due: %+v", d)
		}
	}},
	{"planning/a plan for a schedule that Due no longer returns does nothing", func(c *check) {
		at := c.now().Add(-time.Minute)
		for what, change := range map[string]func(name string){
			"carried out": func(name string) { c.materialize(plan(c.dueSchedule(name))) },
			"taken over": func(name string) {
				c.register(true, nil, store.Schedule{Name: name, Handler: "orders", Spec: "2"})
			},
			"paused":    func(name string) { c.setSchedule(name, store.Override{PausedUntil: ptr(time.Hour)}) },
			"forgotten": func(name string) { c.forget(name) },
			"new again": func(name string) {
				c.forget(name)
				c.register(true, nil, store.Schedule{Name: name, Handler: "orders", Spec: "1"})
			},
		} {
			s := store.Schedule{Name: what, Handler: "orders", Spec: "1"}
			c.planned(s, at)
			outdated := plan(c.dueSchedule(what), tick(s, at))
			change(what)
			if done := c.materialize(outdated); len(done) != 0 {
				c.Errorf("%s: %+v", what, done)
			}
			if runs := c.runs(store.Filter{Schedule: what}, 10); len(runs) != 0 {
				c.Errorf("%s: %+v", what, runs)
			}
		}
		s := store.Schedule{Name: "resumed", Handler: "orders", Spec: "1"}
		c.planned(s, at)
		c.setSchedule("resumed", store.Override{PausedUntil: ptr(time.Hour)})
		paused := plan(c.dueSchedule("resumed"))
		paused.PausedTicks = 1
		c.setSchedule("resumed", store.Override{PausedUntil: ptr(time.Duration(0))})
		if done := c.materialize(paused); len(done) != 0 {
			c.Errorf("a plan for a pause that has ended: %+v", done)
		}
	}},
	{"planning/an outdated plan does not prevent other plans", func(c *check) {
		at := c.now().Add(-time.Minute)
		hourly := store.Schedule{Name: "hourly", Handler: "orders", Spec: "1"}
		c.planned(daily, at)
		c.planned(hourly, at)
		outdated := plan(c.dueSchedule("daily"), tick(daily, at))
		other := plan(c.dueSchedule("hourly"), tick(hourly, at))
		c.materialize(outdated)
		done := c.materialize(outdated, other)
		if len(done) != 1 || done[0].Schedule != "hourly" || done[0].Queued != 1 {
			c.Errorf("%+v", done)
		}
		if row := c.schedule("daily"); row.Queued != 1 {
			c.Errorf("%+v", row)
		}
	}},
	{"planning/a tick has one run, even if its schedule was deleted and registered again", func(c *check) {
		at := c.now().Add(-time.Minute)
		for i, want := range []store.Materialized{
			{Schedule: "daily", Queued: 1, Coalesced: 2}, {Schedule: "daily", Coalesced: 3}} {
			c.planned(daily, at)
			p := plan(c.dueSchedule("daily"), tick(daily, at))
			p.Runs[0].Backfill = i == 1 // a backfill is not refused when another run waits
			p.Coalesced = 2
			if done := c.materialize(p); len(done) != 1 || done[0] != want {
				c.Errorf("%+v, want %+v", done, want)
			}
			if row := c.schedule("daily"); row.Queued != want.Queued || row.Coalesced != want.Coalesced {
				c.Errorf("%+v, want %+v", row, want)
			}
			c.forget("daily")
		}
		if runs := c.runs(store.Filter{}, 10); len(runs) != 1 {
			c.Errorf("%+v", runs)
		}
	}},
	{"planning/one run of a schedule waits, not counting backfills, retries and triggered runs", func(c *check) {
		at := c.now().Add(-time.Hour)
		c.planned(daily, at)
		next := func(backfill bool) store.Materialized {
			d := c.dueSchedule("daily")
			run := tick(daily, d.NextDueAt)
			run.Backfill = backfill
			done := c.materialize(plan(d, run))
			if len(done) != 1 || done[0].Queued+done[0].Coalesced != 1 {
				c.Fatalf("%+v", done)
			}
			return done[0]
		}
		for i, step := range []struct {
			does   func()
			queued int64
		}{
			{func() {}, 1},
			{func() {}, 0},
			{func() { c.insert(store.NewRun{Handler: "orders", RunIn: time.Hour}) }, 0},
			{func() { c.claimOne(orders) }, 1},
			{func() { c.finishes(failed(c.claimOne(orders))) }, 1},
			{func() {}, 0},
		} {
			step.does()
			if done := next(false); done.Queued != step.queued {
				c.Errorf("step %d: %+v, want %d queued", i, done, step.queued)
			}
		}
		if done := next(true); done.Queued != 1 {
			c.Errorf("a backfill: %+v", done)
		}
	}},
	{"planning/all plans or none", func(c *check) {
		if c.h.Refuse == nil {
			c.Skip("the harness cannot make the database refuse a run")
		}
		at := c.now().Add(-time.Minute)
		var plans []store.Plan
		for i := range 5 {
			s := store.Schedule{Name: fmt.Sprint("schedule", i), Handler: "orders", Spec: "1"}
			c.planned(s, at)
			plans = append(plans, plan(c.dueSchedule(s.Name), tick(s, at)))
		}
		c.h.Refuse(c, c.Store, "refused")
		plans[3].Handler, plans[3].Runs[0].Handler = "refused", "refused"
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		defer cancel()
		if done, err := c.Materialize(ctx, plans); err == nil {
			c.Errorf("no error, but %+v", done)
		}
		if runs, due := c.runs(store.Filter{}, 10), c.due(); len(runs) != 0 || len(due.Schedules) != 5 {
			c.Errorf("%d runs, %d schedules are due, want 0 and 5", len(runs), len(due.Schedules))
		}
		if done := c.materialize(append(plans[:3:3], plans[4])...); len(done) != 4 {
			c.Errorf("without the refused plan: %+v", done)
		}
	}},
}

var planningAtOnce = []promise{
	{"planning/by many workers at once: a tick has one run and is counted once", func(c *check) {
		const schedules = 5
		ticks := 6 * c.h.Rounds
		first := c.now().Add(-time.Hour)
		for i := range schedules {
			c.planned(store.Schedule{Name: fmt.Sprint("schedule", i), Handler: "orders", Spec: "1"}, first)
		}
		last := first.Add(time.Duration(ticks) * time.Second)
		var queued, coalesced atomic.Int64
		c.atOnce(6, func(_ int, c *check) {
			for {
				var plans []store.Plan
				for _, d := range c.due().Schedules {
					if !d.NextDueAt.Before(last) {
						continue
					}
					p := store.Plan{Schedule: d, Handler: "orders", Last: d.NextDueAt,
						Next: d.NextDueAt.Add(time.Second)}
					run := store.NewRun{Handler: "orders", Schedule: d.Name, DueAt: d.NextDueAt, RunAt: d.NextDueAt}
					run.Backfill = d.Name != "schedule0"
					p.Runs = []store.NewRun{run}
					plans = append(plans, p)
				}
				if len(plans) == 0 {
					return
				}
				for _, done := range c.materialize(plans...) {
					queued.Add(done.Queued)
					coalesced.Add(done.Coalesced)
				}
			}
		})
		// schedule0 has one waiting run
		if want := int64((schedules-1)*ticks + 1); queued.Load() != want || coalesced.Load() != int64(ticks-1) {
			c.Errorf("queued %d, coalesced %d; want %d, %d", queued.Load(), coalesced.Load(), want, ticks-1)
		}
		if runs := c.runs(store.Filter{}, 10_000); len(runs) != int(queued.Load()) {
			c.Errorf("%d runs, want %d", len(runs), queued.Load())
		}
		for i := range schedules {
			row := c.schedule(fmt.Sprint("schedule", i))
			if row.Queued+row.Coalesced != int64(ticks) || !row.NextDueAt.Equal(last) {
				c.Errorf("%+v, want %d ticks", row, ticks)
			}
		}
	}},
}

func (c *check) forget(name string) (ok bool) {
	c.Helper()
	c.call("Forget", func(ctx context.Context) (err error) { ok, err = c.Forget(ctx, name); return err })
	return ok
}
