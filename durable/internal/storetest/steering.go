package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var inserting = []promise{
	{"inserting/a run with all fields", func(c *check) {
		at := c.now().Add(-time.Hour)
		by := store.Cause{By: "Ann", Note: "again"}
		id := c.insert(store.NewRun{Handler: "orders", RunAt: at, Priority: -1, MaxAttempts: 7, Key: "k",
			Payload: []byte{0, 1, 255}, By: by, TraceParent: "00-1-2-01"})
		run := c.inState(id, store.StateQueued, 0)
		if run.Handler != "orders" || !run.RunAt.Equal(at) || run.Priority != -1 || run.Key != "k" || run.By != by ||
			string(run.Payload) != "\x00\x01\xff" || run.PayloadLen != 3 || run.Attempt != 0 || run.Schedule != "" ||
			!run.DueAt.IsZero() || run.Worker != "" || !run.ClaimedAt.IsZero() || !run.LeaseUntil.IsZero() ||
			!run.FinishedAt.IsZero() || run.LastError != "" || run.CanceledBy != (store.Cause{}) ||
			run.TraceParent != "00-1-2-01" {
			c.Errorf("%+v", run)
		}
		c.ready(orders)
		if run := c.claimOne(orders); run.TraceParent != "00-1-2-01" {
			c.Errorf("claimed: %+v", run)
		}
	}},
	{"inserting/a run is due at RunAt, after RunIn, or immediately", func(c *check) {
		from := c.now()
		at := from.Add(-time.Hour)
		for _, step := range []struct {
			run  store.NewRun
			want time.Time
		}{
			{store.NewRun{Handler: "orders"}, from},
			{store.NewRun{Handler: "orders", RunIn: time.Hour}, from.Add(time.Hour)},
			{store.NewRun{Handler: "orders", RunAt: at, RunIn: time.Hour}, at},
		} {
			run, _ := c.run(c.insert(step.run))
			c.near("RunAt", run.RunAt, step.want)
			c.near("CreatedAt", run.CreatedAt, from)
		}
	}},
	{"inserting/a key that the handler has had is not fresh", func(c *check) {
		c.ready(orders, mails)
		first := c.insert(store.NewRun{Handler: "orders", Key: "k"})
		for _, step := range []struct {
			handler, key string
			fresh        bool
		}{
			{"orders", "k", false}, {"mails", "k", true}, {"orders", "K", true}, {"orders", "", true},
			{"orders", "", true},
		} {
			c.inserting(store.NewRun{Handler: step.handler, Key: step.key}, step.fresh)
		}
		for _, run := range c.claims(5, request(10, orders, mails)) {
			c.finishes(succeeded(run))
		}
		if id := c.inserting(store.NewRun{Handler: "orders", Key: "k", Payload: []byte("other")}, false); id != first {
			c.Errorf("run %d, want %d", id, first)
		}
		if run, _ := c.run(first); len(run.Payload) != 0 || run.State != store.StateSucceeded {
			c.Errorf("%+v", run)
		}
	}},
	{"inserting/one key by many callers at once: one run is fresh", func(c *check) {
		for range 3 * c.h.Rounds {
			var fresh atomic.Int64
			ids := make([]int64, 6)
			key := c.now().String()
			c.atOnce(len(ids), func(i int, c *check) {
				c.call("Insert", func(ctx context.Context) error {
					done, err := c.Insert(ctx, nil, store.NewRun{Handler: "orders", Key: key})
					if err == nil && done[0].Fresh {
						fresh.Add(1)
					}
					if err == nil {
						ids[i] = done[0].ID
					}
					return err
				})
			})
			for _, id := range ids {
				if id != ids[0] || fresh.Load() != 1 {
					c.Fatalf("%d are fresh: %v", fresh.Load(), ids)
				}
			}
			c.pass(c.now())
		}
	}},
	{"inserting/a key until the run starts belongs to the run that waits for its first attempt", func(c *check) {
		c.ready(orders)
		run := store.NewRun{Handler: "orders", Key: "k", KeyUntil: store.KeyUntilStarted}
		forever := run
		forever.KeyUntil = store.KeyForever
		first := c.inserting(run, true)
		if id := c.inserting(forever, false); id != first {
			c.Errorf("%d, want %d", id, first)
		}
		c.inserting(run, false)
		claimed := c.claimOne(orders)
		if claimed.Key != "" {
			c.Errorf("%+v has a key that other runs may have", claimed)
		}
		second := c.inserting(run, true)
		c.finishes(failed(claimed)) // and is queued again next to the second run
		if id := c.inserting(run, false); id != second {
			c.Errorf("%d, want %d", id, second)
		}
		c.cancel(second, store.Cause{})
		third := c.inserting(run, true)
		if n := c.requeue(store.Filter{IDs: []int64{second}}, store.Cause{}); n != 1 {
			c.Errorf("%d were requeued", n)
		}
		if id := c.inserting(run, false); id != third {
			c.Errorf("%d, want %d", id, third)
		}
		c.claims(3, request(10, orders))
		c.inserting(forever, true)
		c.inserting(run, false)
	}},
	{"inserting/a key until the run ends belongs to the run while it is tried again", func(c *check) {
		c.ready(orders)
		run := store.NewRun{Handler: "orders", Key: "k", KeyUntil: store.KeyUntilEnded}
		first := c.inserting(run, true)
		again := func() {
			c.Helper()
			if id := c.inserting(run, false); id != first {
				c.Fatalf("%d, want %d", id, first)
			}
		}
		again()
		claimed := c.claimOne(orders)
		again()
		c.finishes(failed(claimed))
		again()
		c.finishes(givenBack(c.claimOne(orders)))
		again()
		brief := request(1, orders)
		brief.TTL = short
		c.claims(1, brief)
		c.reclaims(1)
		again()
		c.finishes(succeeded(c.claimOne(orders)))
		first = c.inserting(run, true)
		c.finishes(dead(c.claimOne(orders)))
		second := c.inserting(run, true)
		if n := c.requeue(store.Filter{IDs: []int64{first}}, store.Cause{}); n != 1 {
			c.Errorf("%d were requeued", n)
		}
		first = second
		again()
		c.cancel(second, store.Cause{})
		c.inserting(run, true)
	}},
	{"inserting/a key for some time belongs to the run until the time is over", func(c *check) {
		c.ready(orders)
		run := store.NewRun{Handler: "orders", Key: "k", KeyFor: short}
		long := run
		long.KeyFor = time.Hour
		first := c.inserting(run, true)
		c.pass(c.now().Add(short))
		second := c.inserting(long, true) // although the first run waits
		if id := c.inserting(run, false); id != second {
			c.Errorf("%d, want %d", id, second)
		}
		for _, run := range c.claims(2, request(10, orders)) {
			if c.finishes(succeeded(run)); run.Key != "" {
				c.Errorf("%+v has a key that other runs may have", run)
			}
		}
		if id := c.inserting(run, false); id != second || id == first { // although the run has ended
			c.Errorf("%d, want %d", id, second)
		}
	}},
	{"inserting/an expired key by many callers at once: one run is fresh", func(c *check) {
		for range 3 * c.h.Rounds {
			run := store.NewRun{Handler: "orders", Key: c.now().String(), KeyFor: short}
			c.inserting(run, true)
			c.pass(c.now().Add(short))
			run.KeyFor = time.Hour
			var fresh atomic.Int64
			c.atOnce(5, func(i int, c *check) {
				c.call("Insert", func(ctx context.Context) error {
					done, err := c.Insert(ctx, nil, run)
					if err == nil && done[0].Fresh {
						fresh.Add(1)
					}
					return err
				})
			})
			if fresh.Load() != 1 {
				c.Errorf("%d are fresh", fresh.Load())
			}
		}
	}},
	{"inserting/a key of an open transaction makes others wait for its end", func(c *check) {
		if c.h.Begin == nil {
			c.Skip("the harness has no transactions")
		}
		for _, until := range []store.KeyUntil{store.KeyForever, store.KeyUntilStarted, store.KeyUntilEnded} {
			for _, commit := range []bool{false, true} {
				run := store.NewRun{Handler: "orders", Key: fmt.Sprint(until, commit), KeyUntil: until}
				tx := c.h.Begin(c, c.Store)
				mine, err := c.Insert(c.ctx, tx, run)
				if err != nil || !mine[0].Fresh {
					c.Fatalf("%+v, %v", mine, err)
				}
				var theirs []store.Inserted
				c.atOnce(2, func(i int, c *check) {
					switch {
					case i == 0:
						c.call("Insert", func(ctx context.Context) (err error) {
							theirs, err = c.Insert(ctx, nil, run)
							return err
						})
					case commit:
						c.call("Commit", func(context.Context) error { return tx.Commit() })
					default:
						c.call("Rollback", func(context.Context) error { return tx.Rollback() })
					}
				})
				if theirs[0].Fresh == commit || commit && theirs[0].ID != mine[0].ID {
					c.Errorf("%q, commit %t: %+v, and then %+v", until, commit, mine, theirs)
				}
			}
		}
	}},
	{"inserting/a run with a key until its start waits for transactions that insert the key",
		func(c *check) {
			if c.h.Begin == nil || c.h.NotifiesOnlyItself {
				c.Skip("the harness has no transactions, or all of them lock the whole database")
			}
			c.ready(orders)
			run := store.NewRun{Handler: "orders", Key: "k", KeyUntil: store.KeyUntilStarted}
			first := c.inserting(run, true)
			tx := c.h.Begin(c, c.Store)
			done, err := c.Insert(c.ctx, tx, run)
			if err != nil || done[0] != (store.Inserted{ID: first}) {
				c.Fatalf("%+v, %v", done, err)
			}
			c.claims(0, request(1, orders))
			c.insert(store.NewRun{Handler: "orders"})
			c.claims(1, request(2, orders)) // claims the run without the key
			if err := tx.Commit(); err != nil {
				c.Fatal(err)
			}
			c.claims(1, request(1, orders))
		}},
	{"inserting/a key until the run ends has one unfinished run at every instant", func(c *check) {
		c.ready(orders)
		run := store.NewRun{Handler: "orders", Key: "k", KeyUntil: store.KeyUntilEnded}
		for range 4 * c.h.Rounds {
			c.atOnce(4, func(i int, c *check) {
				for range 5 {
					if i == 0 {
						for _, run := range c.claim(request(10, orders)).Runs {
							c.finish(succeeded(run))
						}
						continue
					}
					c.insertMany(-1, run)
					live := c.runs(store.Filter{States: []store.State{store.StateQueued, store.StateRunning}}, 10)
					if len(live) > 1 {
						c.Errorf("there are %+v", live)
					}
				}
			})
		}
	}},
	{"inserting/many runs in one call, in order, each with its key", func(c *check) {
		c.ready(orders)
		old := c.insert(store.NewRun{Handler: "orders", Key: "old"})
		if done := c.insertMany(0); len(done) != 0 {
			c.Errorf("%+v", done)
		}
		var many []store.NewRun
		for i := range 1100 { // more than one batch
			many = append(many, store.NewRun{Handler: "orders", Payload: []byte{0, byte(i), 255}, Priority: 1})
		}
		by := store.Cause{By: "Ann", Note: "again"}
		many[7] = store.NewRun{Handler: "orders", Key: "old"}
		many[9] = store.NewRun{Handler: "mails", Key: "old", RunIn: time.Hour, By: by, MaxAttempts: 7,
			TraceParent: "00"}
		many[11] = store.NewRun{Handler: "orders", Key: "new", Priority: -1}
		many[12] = store.NewRun{Handler: "orders", Key: "new"}
		many[1034] = store.NewRun{Handler: "orders", Key: "new"}
		many[1045] = store.NewRun{Handler: "orders", Key: "old"}
		done := c.insertMany(len(many)-4, many...)
		if done[7].ID != old || done[1045].ID != old || done[12].ID != done[11].ID || done[1034].ID != done[11].ID ||
			done[9].ID == old {
			c.Errorf("the runs of the keys are %+v, %+v, %+v, %+v, %+v, %+v", done[7], done[2345], done[11], done[12],
				done[1034], done[9])
		}
		ids := map[int64]bool{}
		last := old
		for i, d := range done {
			if d.Fresh && (d.ID <= last || ids[d.ID]) {
				c.Fatalf("run %d has the ID %d after %d", i, d.ID, last)
			}
			if ids[d.ID] = true; d.Fresh {
				last = d.ID
			}
		}
		for _, i := range []int{0, 999, 1000, 1099} {
			if run, _ := c.run(done[i].ID); string(run.Payload) != string(many[i].Payload) || run.Priority != 1 {
				c.Errorf("run %d is %+v", i, run)
			}
		}
		run, _ := c.run(done[9].ID)
		if run.Handler != "mails" || run.By != by || run.TraceParent != "00" || run.MaxAttempts != 7 ||
			run.RunAt.Sub(run.CreatedAt) < 59*time.Minute || len(run.Payload) != 0 {
			c.Errorf("%+v", run)
		}
		if runs := c.claims(1, request(1, orders)); runs[0].ID != done[11].ID {
			c.Errorf("the first one is %+v", runs[0])
		}
	}},
	{"inserting/many runs by many callers at once: each key is fresh once", func(c *check) {
		for range c.h.Rounds {
			var many, back []store.NewRun
			for i := range 20 {
				run := store.NewRun{Handler: "orders", Key: fmt.Sprint(c.now(), i)}
				many, back = append(many, run), append([]store.NewRun{run}, back...)
			}
			var mu sync.Mutex
			ids, fresh := map[string]int64{}, 0
			c.atOnce(4, func(i int, c *check) {
				runs := many
				if i%2 == 1 {
					runs = back // so that the calls may block each other
				}
				c.call("Insert", func(ctx context.Context) error {
					done, err := c.Insert(ctx, nil, runs...)
					mu.Lock()
					defer mu.Unlock()
					for j, d := range done {
						if d.Fresh {
							fresh++
						}
						if id := ids[runs[j].Key]; id != 0 && id != d.ID {
							c.Errorf("the key %q has the runs %d and %d", runs[j].Key, id, d.ID)
						}
						ids[runs[j].Key] = d.ID
					}
					return err
				})
			})
			if fresh != len(many) {
				c.Errorf("%d are fresh", fresh)
			}
		}
	}},
	{"inserting/in a transaction of the application", func(c *check) {
		if c.h.Begin == nil {
			c.Skip("the harness has no transactions")
		}
		c.insert(store.NewRun{Handler: "orders", Key: "old"})
		for _, commit := range []bool{false, true} {
			tx := c.h.Begin(c, c.Store)
			run := store.NewRun{Handler: "orders", Key: "new", Payload: []byte{0, 255}, By: store.Cause{By: "Ann"}}
			for i, step := range []struct {
				key   string
				fresh bool
			}{{"old", false}, {"new", true}, {"new", false}} {
				run.Key = step.key
				ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
				defer cancel()
				done, err := c.Insert(ctx, tx, run)
				if err != nil || done[0].Fresh != step.fresh || done[0].ID == 0 {
					c.Fatalf("step %d: %+v, %v", i, done, err)
				}
			}
			if runs := c.runs(store.Filter{}, 10); len(runs) != 1 {
				c.Errorf("before the end of the transaction there are %+v", runs)
			}
			c.seesQueued(tx, "old", "new")
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				c.Fatal(err)
			}
			want := 1
			if commit {
				want = 2
			}
			runs := c.runs(store.Filter{}, 10)
			if len(runs) != want || runs[0].By.By != "Ann" && commit {
				c.Errorf("after it there are %+v", runs)
			}
		}
		tx := c.h.Begin(c, c.Store)
		many := make([]store.NewRun, 250)
		for i := range many {
			many[i].Handler = "mails"
		}
		if done, err := c.Insert(c.ctx, tx, many...); err != nil || len(done) != len(many) {
			c.Errorf("%d, %v", len(done), err)
		}
		if err := tx.Rollback(); err != nil {
			c.Fatal(err)
		}
		if runs := c.runs(store.Filter{Handler: "mails"}, 10); len(runs) != 0 {
			c.Errorf("after a rollback there are %+v", runs)
		}
		if _, err := c.Insert(c.ctx, tx, store.NewRun{Handler: "orders"}); err == nil {
			c.Error("a transaction that has ended: no error")
		}
	}},
}

// seesQueued fails the test unless a transaction sees queued runs with these keys in this order,
// and the last run with all its fields.
func (c *check) seesQueued(tx store.Tx, keys ...string) {
	c.Helper()
	var after int64
	for i, key := range append(keys, "") {
		run, ok, err := c.NextQueued(c.ctx, tx, after)
		if err != nil || ok != (i < len(keys)) || run.Key != key || ok && (run.ID <= after || run.Handler != "orders") {
			c.Fatalf("the transaction sees %+v, %t, %v, want %q", run, ok, err, key)
		}
		last := i == len(keys)-1
		if last && (string(run.Payload) != "\x00\xff" || run.By.By != "Ann" ||
			c.now().Sub(run.RunAt).Abs() > time.Minute) {
			c.Errorf("the transaction sees %+v", run)
		}
		after = run.ID
	}
}

func (c *check) inserting(run store.NewRun, wantFresh bool) (id int64) {
	c.Helper()
	c.call("Insert", func(ctx context.Context) (err error) {
		done, err := c.Insert(ctx, nil, run)
		if err != nil {
			return err
		}
		if id = done[0].ID; done[0].Fresh != wantFresh {
			c.Errorf("%+v: fresh is %t", run, done[0].Fresh)
		}
		return nil
	})
	return id
}

var steering = []promise{
	{"steering/a queued run is canceled immediately", func(c *check) {
		c.ready(orders)
		id := c.insert(store.NewRun{Handler: "orders"})
		from := c.now()
		by := store.Cause{By: "Ann", Note: "wrong"}
		if was := c.cancel(id, by); was != store.StateQueued {
			c.Errorf("it was %q", was)
		}
		run := c.inState(id, store.StateCanceled, 0)
		c.near("FinishedAt", run.FinishedAt, from)
		if run.CanceledBy != by {
			c.Errorf("%+v", run)
		}
		c.claims(0, request(10, orders))
	}},
	{"steering/canceling a dead run discards it", func(c *check) {
		c.ready(orders)
		id := c.insert(store.NewRun{Handler: "orders"})
		c.finishes(dead(c.claimOne(orders)))
		from := c.now()
		by := store.Cause{By: "Ann", Note: "not wanted any more"}
		if was := c.cancel(id, by); was != store.StateDead {
			c.Errorf("it was %q", was)
		}
		run := c.inState(id, store.StateCanceled, 1)
		c.near("FinishedAt", run.FinishedAt, from)
		if run.CanceledBy != by {
			c.Errorf("%+v", run)
		}
		if n := c.requeue(store.Filter{States: []store.State{store.StateDead}}, by); n != 0 {
			c.Errorf("%d dead runs were queued", n)
		}
		if n := c.requeue(store.Filter{IDs: []int64{id}}, by); n != 1 {
			c.Errorf("%d", n)
		}
		c.claimOne(orders)
	}},
	{"steering/Cancel returns the state before the call, and changes no run that has succeeded", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 3)
		runs := c.claims(3, request(3, orders))
		c.cancel(runs[1].ID, store.Cause{By: "Bob"})
		c.finishes(succeeded(runs[0]), failed(runs[1]))
		for i, want := range []store.State{store.StateSucceeded, store.StateCanceled, store.StateRunning} {
			was, _ := c.run(runs[i].ID)
			if got := c.cancel(runs[i].ID, store.Cause{By: "Ann"}); got != want {
				c.Errorf("%q, want %q", got, want)
			}
			if run := c.inState(runs[i].ID, want, min(1, 2-i)); i < 2 && !sameRun(run, was) {
				c.Errorf("%+v, but it was %+v before", run, was)
			}
		}
		if got := c.cancel(1<<50, store.Cause{}); got != "" {
			c.Errorf("%q", got)
		}
	}},
	{"steering/Requeue adds attempts, and needs only a filter", func(c *check) {
		c.ready(orders)
		id := c.insert(store.NewRun{Handler: "orders"})
		c.finishes(failed(c.claimOne(orders)))
		c.finishes(dead(c.claimOne(orders)))
		by := store.Cause{By: "Ann", Note: "paper is there"}
		from := c.now()
		if n := c.requeue(store.Filter{IDs: []int64{id}}, by); n != 1 {
			c.Fatalf("%d", n)
		}
		run := c.inState(id, store.StateQueued, 2)
		c.near("RunAt", run.RunAt, from)
		if run.By != by || !run.FinishedAt.IsZero() || run.Attempt != 2 {
			c.Errorf("%+v", run)
		}
		for i := range 3 {
			run := c.claimOne(orders)
			if run.Attempt != 3+i || run.MaxAttempts != 5 {
				c.Errorf("%+v", run)
			}
			c.finishes(failed(run))
		}
		if n := c.requeue(store.Filter{IDs: []int64{id}}, by); n != 0 {
			c.Errorf("%d queued runs were queued again", n)
		}
	}},
	{"steering/Requeue of a run with its own MaxAttempts adds that number", func(c *check) {
		own := store.Handler{Name: "orders", MaxAttempts: 9}
		c.ready(own)
		c.insert(store.NewRun{Handler: "orders", MaxAttempts: 2})
		c.finishes(dead(c.claimOne(own)))
		c.requeue(store.Filter{}, store.Cause{})
		if run := c.claimOne(own); run.Attempt != 2 || run.MaxAttempts != 3 {
			c.Errorf("%+v", run)
		}
	}},
	{"steering/Requeue takes only dead and canceled runs that match the filter", func(c *check) {
		c.ready(orders, mails)
		c.inserts("orders", 6)
		runs := c.claims(5, request(5, orders))
		c.finishes(dead(runs[0]), dead(runs[1]), dead(runs[2]), succeeded(runs[3]))
		canceled := c.insert(store.NewRun{Handler: "mails"})
		c.cancel(canceled, store.Cause{By: "Bob"})
		for _, step := range []struct {
			which store.Filter
			want  int
		}{
			{store.Filter{Handler: "nobody's"}, 0},
			{store.Filter{States: []store.State{store.StateSucceeded, store.StateRunning, store.StateQueued}}, 0},
			{store.Filter{IDs: []int64{runs[1].ID, runs[3].ID, 1 << 50}}, 1},
			{store.Filter{Handler: "mails", States: []store.State{store.StateDead}}, 0},
			{store.Filter{CreatedBefore: runs[0].CreatedAt}, 0},
			{store.Filter{Handler: "orders", BeforeID: runs[2].ID}, 1},
			{store.Filter{}, 2},
			{store.Filter{}, 0},
		} {
			if n := c.requeue(step.which, store.Cause{By: "Ann"}); n != step.want {
				c.Errorf("%+v: %d, want %d", step.which, n, step.want)
			}
		}
		if run := c.inState(canceled, store.StateQueued, 0); run.CanceledBy != (store.Cause{}) {
			c.Errorf("%+v", run)
		}
		claimed := c.claims(5, request(10, orders, mails))
		if renewed := c.renew(worker, claimed[0].RunKey); len(renewed) != 1 || renewed[0].Canceled {
			c.Errorf("%+v", renewed)
		}
	}},
	{"steering/Requeue takes the requested number, newest first, and returns where to continue", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 5)
		for _, run := range c.claims(5, request(5, orders)) {
			c.finishes(dead(run))
		}
		which, total := store.Filter{Handler: "orders"}, 0
		for _, want := range []int{2, 2, 1} {
			n, after, err := c.Requeue(c.ctx, which, store.Cause{By: "Ann"}, 2)
			queued := c.runs(store.Filter{States: []store.State{store.StateQueued}}, 10)
			if total += n; n != want || err != nil || len(queued) != total || (after == 0) != (want == 1) ||
				after != 0 && queued[total-1].ID != after {
				c.Fatalf("%d, want %d, after %d, %v: %+v", n, want, after, err, queued)
			}
			which.BeforeID = after
		}
	}},
	{"steering/a requeued run may wait while another run of its schedule waits", func(c *check) {
		c.planned(daily, c.now().Add(-time.Hour))
		for range 2 {
			d := c.dueSchedule("daily")
			if done := c.materialize(plan(d, tick(daily, d.NextDueAt))); done[0].Queued != 1 {
				c.Fatalf("%+v", done)
			}
			if all := c.runs(store.Filter{}, 10); len(all) == 1 {
				c.cancel(all[0].ID, store.Cause{})
			}
		}
		if n := c.requeue(store.Filter{}, store.Cause{}); n != 1 {
			c.Errorf("%d", n)
		}
		c.claims(2, request(10, orders))
	}},
	{"steering/a schedule is paused and resumed, even before it is registered", func(c *check) {
		from := c.now()
		by := store.Cause{By: "Ann", Note: "stocktaking"}
		c.setSchedule("daily", store.Override{PausedUntil: ptr(time.Hour), By: by})
		row := c.schedule("daily")
		if row.Pause == nil || row.Pause.By != by || !row.SeenAt.IsZero() {
			c.Fatalf("%+v", row)
		}
		c.near("Until", row.Pause.Until, from.Add(time.Hour))
		if d := c.due(); len(d.Schedules) != 0 {
			c.Errorf("an unregistered schedule is due: %+v", d)
		}
		c.register(false, nil, daily)
		if d := c.dueSchedule("daily"); !d.PausedUntil.Equal(row.Pause.Until) || d.Spec != "1" || d.NextSpec != "" ||
			!d.NextDueAt.IsZero() {
			c.Errorf("%+v", d)
		}
		if row := c.schedule("daily"); row.Handler != "orders" || row.Text != daily.Text || row.SeenAt.IsZero() {
			c.Errorf("%+v", row)
		}
		c.setSchedule("daily", store.Override{})
		if row := c.schedule("daily"); row.Pause == nil {
			c.Errorf("%+v", row)
		}
		c.setSchedule("daily", store.Override{PausedUntil: ptr(time.Duration(0))})
		if row := c.schedule("daily"); row.Pause != nil {
			c.Errorf("%+v", row)
		}
		c.setSchedule("daily", store.Override{PausedUntil: ptr(short)})
		c.pass(c.now().Add(short))
		if row := c.schedule("daily"); row.Pause != nil {
			c.Errorf("%+v", row)
		}
	}},
	{"steering/Due returns the beginning and end of the latest pause", func(c *check) {
		c.planned(daily, c.now().Add(-time.Hour))
		set := func(pause time.Duration) (was, is store.DueSchedule, from time.Time) {
			was, from = c.dueSchedule("daily"), c.now()
			c.setSchedule("daily", store.Override{PausedUntil: &pause})
			return was, c.dueSchedule("daily"), from
		}
		if was, is, _ := set(0); !is.Equal(was) && !is.PausedAt.Equal(is.PausedUntil) {
			c.Errorf("resumed without a pause: %+v", is)
		}
		_, is, from := set(time.Hour)
		c.near("PausedAt", is.PausedAt, from)
		c.near("PausedUntil", is.PausedUntil, from.Add(time.Hour))
		c.pass(is.PausedAt)
		was, is, from := set(2 * time.Hour)
		if !is.PausedAt.Equal(was.PausedAt) {
			c.Errorf("a longer pause has a new beginning: %+v, but it was %+v before", is, was)
		}
		c.near("PausedUntil", is.PausedUntil, from.Add(2*time.Hour))
		was, is, from = set(0)
		if !is.PausedAt.Equal(was.PausedAt) {
			c.Errorf("resumed: %+v, but it was %+v before", is, was)
		}
		c.near("PausedUntil", is.PausedUntil, from)
		c.pass(is.PausedUntil)
		if was, is, _ := set(0); !is.Equal(was) {
			c.Errorf("resumed again: %+v, but it was %+v before", is, was)
		}
		_, is, from = set(time.Hour)
		c.near("PausedAt", is.PausedAt, from)
	}},
	{"steering/Forget deletes the row of a schedule but no run", func(c *check) {
		c.planned(daily, c.now().Add(-time.Hour))
		d := c.dueSchedule("daily")
		c.materialize(plan(d, tick(daily, d.NextDueAt)))
		if !c.forget("daily") || c.forget("daily") {
			c.Error("Forget returned a wrong answer")
		}
		if d := c.due(); len(d.Schedules) != 0 {
			c.Errorf("%+v", d)
		}
		if run := c.claimOne(orders); run.Schedule != "daily" {
			c.Errorf("%+v", run)
		}
	}},
}
