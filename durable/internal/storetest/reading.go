package storetest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/flow"
	"github.com/tickslot/tickslot/internal/testkit"
)

var reading = []promise{
	{"reading/runs without payloads, newest first, in pages", func(c *check) {
		c.ready(orders, mails)
		var ids []int64
		for i := range 7 {
			handler := []string{"orders", "mails"}[i%2]
			ids = append(ids, c.insert(store.NewRun{Handler: handler, Payload: []byte("payload")}))
		}
		slices.Reverse(ids)
		var got []int64
		for after := int64(0); ; {
			page := c.runs(store.Filter{BeforeID: after}, 3)
			if len(page) == 0 {
				break
			}
			for _, run := range page {
				got = append(got, run.ID)
				if run.Payload != nil || run.PayloadLen != 7 {
					c.Errorf("%+v", run)
				}
				after = run.ID
			}
		}
		if !slices.Equal(got, ids) {
			c.Errorf("%v, want %v", got, ids)
		}
	}},
	{"reading/the runs that a filter selects", func(c *check) {
		ids := c.ended() // all runs are orders
		c.planned(daily, c.now().Add(-time.Hour))
		between := c.now()
		c.pass(between)
		d := c.dueSchedule("daily")
		c.materialize(plan(d, tick(daily, d.NextDueAt)))
		mail := c.insert(store.NewRun{Handler: "mails"})
		scheduled := c.runs(store.Filter{Schedule: "daily"}, 10)
		if len(scheduled) != 1 {
			c.Fatalf("%+v", scheduled)
		}
		daily := scheduled[0].ID
		succeeded, dead, canceled := ids[store.StateSucceeded], ids[store.StateDead], ids[store.StateCanceled]
		running, queued := ids[store.StateRunning], ids[store.StateQueued]
		for _, step := range []struct {
			which store.Filter
			want  []int64
		}{
			{store.Filter{}, []int64{succeeded, dead, canceled, running, queued, daily, mail}},
			{store.Filter{IDs: []int64{dead, mail, 1 << 50}}, []int64{dead, mail}},
			{store.Filter{Handler: "mails"}, []int64{mail}},
			{store.Filter{Handler: "Mails"}, nil},
			{store.Filter{States: []store.State{store.StateQueued}}, []int64{queued, daily, mail}},
			{store.Filter{States: []store.State{store.StateDead, store.StateRunning}}, []int64{dead, running}},
			{store.Filter{CreatedBefore: between}, []int64{succeeded, dead, canceled, running, queued}},
			{store.Filter{BeforeID: daily}, []int64{succeeded, dead, canceled, running, queued}},
			{store.Filter{Handler: "orders", States: []store.State{store.StateQueued}, BeforeID: mail,
				IDs: []int64{queued, mail}}, []int64{queued}},
			{store.Filter{Schedule: "daily", Handler: "mails"}, nil},
		} {
			var got []int64
			for _, run := range c.runs(step.which, 100) {
				got = append(got, run.ID)
			}
			slices.Sort(got)
			slices.Sort(step.want)
			if !slices.Equal(got, step.want) {
				c.Errorf("%+v: %v, want %v", step.which, got, step.want)
			}
		}
	}},
	{"reading/a run that does not exist", func(c *check) {
		if !c.gone(1 << 50) {
			c.Error("it does")
		}
	}},
	{"reading/Handlers tell how the runs of each ended, and since when all fail", func(c *check) {
		c.ready(orders, mails, store.Handler{Name: "idle"})
		step := func() time.Time {
			at := c.now()
			c.pass(at.Add(2 * time.Millisecond))
			return at
		}
		is := func(name string, failures int64, since time.Time, outcomes ...store.State) {
			c.Helper()
			h := c.handler(name)
			ended := !h.EndedAt.IsZero()
			if h.Failures != failures || !slices.Equal(h.Outcomes, outcomes) || ended != (len(outcomes) > 0) ||
				(h.LastError == "no paper") != (failures > 0) ||
				h.SucceededAt.IsZero() == slices.Contains(outcomes, store.StateSucceeded) {
				c.Errorf("%s: %+v, want %d failures, %v", name, h.HandlerHistory, failures, outcomes)
			}
			if since.IsZero() != h.FailingSince.IsZero() {
				c.Errorf("%s: it has failed since %v, want %v", name, h.FailingSince, since)
			} else if failures > 0 {
				c.near("FailingSince", h.FailingSince, since)
			}
		}
		end := func(as func(store.Run) store.Result) {
			c.Helper()
			step()
			c.inserts("orders", 1)
			c.finishes(as(c.claimOne(orders)))
		}
		is("idle", 0, time.Time{})
		is("orders", 0, time.Time{})
		c.inserts("orders", 1)
		c.cancel(c.runs(store.Filter{Handler: "orders"}, 1)[0].ID, store.Cause{})
		is("orders", 0, time.Time{}, store.StateCanceled)
		first := step()
		end(dead)
		end(dead)
		is("orders", 2, first, store.StateCanceled, store.StateDead, store.StateDead)
		end(succeeded)
		ok := c.handler("orders").SucceededAt
		c.near("SucceededAt", ok, first)
		is("orders", 0, time.Time{}, store.StateCanceled, store.StateDead, store.StateDead, store.StateSucceeded)
		again := step()
		c.inserts("orders", 1)
		c.finishes(failed(c.claimOne(orders)))
		soon := []store.State{store.StateCanceled, store.StateDead, store.StateDead, store.StateSucceeded}
		is("orders", 1, again, soon...)
		running := c.claimOne(orders)
		is("orders", 1, again, soon...)
		later := func(r store.Run) store.Result {
			result := failed(r)
			result.RetryIn = time.Hour
			return result
		}
		c.finishes(later(running))
		is("orders", 1, again, soon...)
		end(dead)
		is("orders", 2, again, append(soon, store.StateDead)...)
		is("mails", 0, time.Time{})
		step()
		c.inserts("mails", 1)
		c.finishes(succeeded(c.claimOne(mails)))
		is("mails", 0, time.Time{}, store.StateSucceeded)
		// A run that was claimed before another one succeeded is no failure since.
		step()
		c.inserts("orders", 2)
		alone := c.claims(2, request(2, orders))
		step()
		c.finishes(succeeded(alone[0]))
		step()
		c.finishes(later(alone[1]))
		is("orders", 0, time.Time{}, append(soon, store.StateDead, store.StateSucceeded)...)
		for range store.MaxOutcomes / 10 {
			c.inserts("orders", 10)
			for _, r := range c.claims(10, request(10, orders)) {
				c.finishes(dead(r))
			}
		}
		many := slices.Repeat([]store.State{store.StateDead}, store.MaxOutcomes)
		if h := c.handler("orders"); !slices.Equal(h.Outcomes[1:], many[1:]) || h.Failures < store.MaxOutcomes-1 {
			c.Errorf("%+v", h.HandlerHistory)
		}
	}},
	{"reading/Flow counts by handler which runs were created and ended when", func(c *check) {
		sums := func() map[string][2]int64 {
			c.Helper()
			sums := map[string][2]int64{}
			c.call("Flow", func(ctx context.Context) error {
				f, err := c.Flow(ctx)
				if d := f.Until.Sub(f.From); d < flow.Span-flow.Interval || d >= flow.Span ||
					c.now().Sub(f.Until) > callTimeout {
					c.Errorf("from %v until %v", f.From, f.Until)
				}
				last := f.From
				for _, n := range f.Counts {
					s := sums[n.Name]
					sums[n.Name] = [2]int64{s[0] + n.In, s[1] + n.Out}
					if n.At.Before(last) || n.At.After(f.Until) || !n.At.Equal(n.At.Truncate(flow.Interval)) ||
						f.Until.Sub(n.At) > 2*flow.Interval {
						c.Errorf("%+v after %v", n, last)
					}
					last = n.At
				}
				return err
			})
			return sums
		}
		c.ready(orders, mails)
		if s := sums(); len(s) != 0 {
			c.Errorf("%v", s)
		}
		c.ended() // of five orders one succeeded, one is dead, and one is canceled
		c.inserts("mails", 2)
		if s := sums(); s["orders"] != [2]int64{5, 3} || s["mails"] != [2]int64{2, 0} || len(s) != 2 {
			c.Errorf("%v", s)
		}
	}},
	{"reading/Stats count runs by handler, and tell who waits for longest", func(c *check) {
		now := c.now()
		c.ready(orders, mails)
		c.setHandler("mails", store.Override{PausedUntil: ptr(time.Hour)})
		c.insert(store.NewRun{Handler: "orders", RunAt: now.Add(-3 * time.Hour)})
		c.insert(store.NewRun{Handler: "orders", RunAt: now.Add(-2 * time.Hour)})
		c.insert(store.NewRun{Handler: "orders", RunAt: now.Add(time.Hour)})
		c.finishes(dead(c.claims(1, request(1, orders))[0]))
		c.inserts("orders", 1)
		c.claims(1, request(1, orders))
		c.insert(store.NewRun{Handler: "nobody's", RunAt: now.Add(-time.Hour)})
		c.planned(daily, now.Add(-time.Minute))
		c.planned(store.Schedule{Name: "hourly", Handler: "mails", Spec: "1"}, now.Add(-time.Second))
		c.planned(store.Schedule{Name: "yearly", Handler: "mails", Spec: "1"}, now.Add(time.Hour))
		stats := c.stats()
		c.near("Now", stats.Now, now)
		if !stats.OldestDue.Equal(now.Add(-time.Hour)) || !stats.Overdue.Equal(now.Add(-time.Minute)) {
			c.Errorf("%+v", stats)
		}
		got := map[string]store.HandlerStats{}
		for _, h := range stats.ByHandler {
			if h.Handler == "orders" || h.Handler == "mails" {
				c.near("SeenAt", h.SeenAt, now)
				h.SeenAt = time.Time{}
			}
			if h.Handler == "orders" {
				c.near("OldestDue", h.OldestDue, now)
				h.OldestDue = time.Time{}
			}
			got[h.Handler] = h
		}
		nobodys := got["nobody's"]
		if len(got) != 3 || got["orders"] != (store.HandlerStats{Handler: "orders", Queued: 2, Running: 1, Dead: 1}) ||
			got["mails"] != (store.HandlerStats{Handler: "mails", Paused: true}) || nobodys.Queued != 1 ||
			!nobodys.OldestDue.Equal(now.Add(-time.Hour)) || !nobodys.SeenAt.IsZero() {
			c.Errorf("%+v", stats.ByHandler)
		}
		if h := c.handler("orders"); h.Queued != 2 || h.Running != 1 || h.Dead != 1 {
			c.Errorf("%+v", h)
		}
	}},
	{"reading/a schedule without a worker is not overdue", func(c *check) {
		hourly := store.Schedule{Name: "hourly", Handler: "mails", Spec: "1"}
		removed, kept := c.now().Add(-time.Minute), c.now().Add(-time.Second)
		c.planned(daily, removed)
		c.planned(hourly, kept)
		if stats := c.stats(); !stats.Overdue.Equal(removed) {
			c.Errorf("Overdue is wrong while workers have both schedules: %+v", stats)
		}
		gone := c.schedule("daily").SeenAt
		testkit.Eventually(c, testkit.Patience, "only the schedule that is registered again and again is overdue",
			func() bool {
				c.register(false, nil, hourly)
				return c.statsOf(c.now().Sub(gone) / 2).Overdue.Equal(kept)
			})
	}},
	{"reading/Notify wakes Listen, if the database supports it", func(c *check) {
		ctx, stop := context.WithCancel(c.ctx)
		woken, ended := make(chan struct{}, 100), make(chan error, 1)
		listener := c.open()
		if c.h.NotifiesOnlyItself {
			listener = c.Store
		}
		go func() { ended <- listener.Listen(ctx, func() { woken <- struct{}{} }) }()
		select {
		case <-woken: // woken once after connecting
			c.call("Notify", c.Notify)
			if !c.h.NoNotifications {
				select {
				case <-woken:
				case <-time.After(testkit.Patience):
					c.Error("Listen reported nothing")
				}
			}
			stop()
			<-ended
		case err := <-ended: // this store cannot listen
			stop()
			c.Logf("Listen: %v", err)
			c.call("Notify", c.Notify)
		}
	}},
}

// awkward has names that must be stored unchanged.
var awkward = []string{
	"orders", "Orders", "orders ", " orders", "o'r\"d`e\\r;s--", "%_[]{}$1?:a@b", "a\nb\tc\r\x01\x1f\x7f", "{payload}",
	"\U0001F600 grüße 日本", "e\u0301", "\u00e9", strings.Repeat("ü", 100), strings.Repeat("a", 200), "null",
	"NULL", "0", "\\x00",
}

var texts = []promise{
	{"texts/names of any kind are stored unchanged and distinguished", func(c *check) {
		var handlers []store.Handler
		var schedules []store.Schedule
		for _, name := range awkward {
			handlers = append(handlers, store.Handler{Name: name, MaxAttempts: 3, MaxConcurrency: 5})
			schedules = append(schedules, store.Schedule{Name: name, Handler: name, Spec: name, Text: name})
		}
		c.register(true, handlers, schedules...)
		var plans []store.Plan
		at := c.now().Add(-time.Minute)
		for _, name := range awkward {
			d := c.dueSchedule(name)
			run := tick(store.Schedule{Name: name, Handler: name}, at)
			run.By = store.Cause{By: name, Note: name}
			plans = append(plans, store.Plan{Schedule: d, Handler: name, Runs: []store.NewRun{run}, Last: at,
				Next: at.Add(time.Hour)})
			by := store.Cause{By: name, Note: name}
			c.setHandler(name, store.Override{MaxConcurrency: ptr(4), PausedUntil: ptr(time.Hour), By: by})
			if h := c.handler(name); h.Override != 4 || h.By != by || h.Pause == nil || h.Pause.By != by {
				c.Errorf("%q: %+v", name, h)
			}
			c.setHandler(name, store.Override{PausedUntil: ptr(time.Duration(0)), By: by})
		}
		if done := c.materialize(plans...); len(done) != len(awkward) {
			c.Fatalf("%+v", done)
		}
		for _, name := range awkward {
			row := c.schedule(name)
			if row.Handler != name || row.Spec != name || row.Text != name || row.Queued != 1 {
				c.Errorf("%q: %+v", name, row)
			}
			id := c.insert(store.NewRun{Handler: name, Key: name, By: store.Cause{By: name, Note: name}})
			c.inserting(store.NewRun{Handler: name, Key: name}, false)
			if run, _ := c.run(id); run.Handler != name || run.Key != name || run.By.By != name || run.By.Note != name {
				c.Errorf("%q: %+v", name, run)
			}
			r := request(10, store.Handler{Name: name, MaxAttempts: 3, MaxConcurrency: 5})
			r.Worker = name
			for _, run := range c.claims(2, r) {
				if run.Handler != name || run.Worker != name {
					c.Errorf("%q: %+v", name, run)
				}
				if renewed := c.renew(name, run.RunKey); len(renewed) != 1 {
					c.Errorf("%q: %+v", name, renewed)
				}
				result := dead(run)
				result.Error = name
				if done, err := c.Finish(c.ctx, name, []store.Result{result}); err != nil || len(done.Counted) != 1 {
					c.Errorf("%q: %+v, %v", name, done, err)
				}
				if run := c.inState(run.ID, store.StateDead, 1); run.LastError != name {
					c.Errorf("%q: %+v", name, run)
				}
			}
			if runs := c.runs(store.Filter{Handler: name}, 10); len(runs) != 2 {
				c.Errorf("%q: %d runs", name, len(runs))
			}
			if n := c.requeue(store.Filter{Handler: name, Schedule: name}, store.Cause{By: name}); n != 1 {
				c.Errorf("%q: %d runs were queued again", name, n)
			}
		}
	}},
	{"texts/payloads of any kind are stored unchanged", func(c *check) {
		c.ready(orders)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for name, payload := range map[string][]byte{
			"nil": nil, "empty": {}, "NUL": {0}, "all bytes": all, "JSON": []byte(`{"a":"\u0000"}`),
			"1 MiB": bytes.Repeat(all, 1<<12),
		} {
			id := c.insert(store.NewRun{Handler: "orders", Payload: payload})
			run := c.claimOne(orders)
			stored, _ := c.run(id)
			if !bytes.Equal(run.Payload, payload) || !bytes.Equal(stored.Payload, payload) ||
				run.PayloadLen != len(payload) || stored.PayloadLen != len(payload) {
				c.Errorf("%s: %d bytes (%d), and then %d (%d)", name, len(run.Payload), run.PayloadLen,
					len(stored.Payload), stored.PayloadLen)
			}
			c.finishes(succeeded(run))
		}
	}},
}
