package storetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// ended creates one run in each final state and returns their IDs.
func (c *check) ended() map[store.State]int64 {
	c.Helper()
	c.ready(orders)
	ids := map[store.State]int64{}
	c.inserts("orders", 4)
	runs := c.claims(4, request(4, orders))
	c.finishes(succeeded(runs[0]), dead(runs[1]))
	c.cancel(runs[2].ID, store.Cause{})
	c.finishes(failed(runs[2]))
	ids[store.StateSucceeded], ids[store.StateDead], ids[store.StateCanceled] = runs[0].ID, runs[1].ID, runs[2].ID
	ids[store.StateRunning] = runs[3].ID
	ids[store.StateQueued] = c.insert(store.NewRun{Handler: "orders"})
	c.pass(c.now().Add(2 * time.Millisecond))
	return ids
}

// gone reports whether a run was deleted.
func (c *check) gone(id int64) (gone bool) {
	c.Helper()
	c.call("Run", func(ctx context.Context) error {
		run, attempts, ok, err := c.Run(ctx, id)
		if !ok && (run.ID != 0 || len(attempts) != 0) {
			c.Errorf("a deleted run: %+v, %+v", run, attempts)
		}
		gone = !ok
		return err
	})
	return gone
}

const old = time.Millisecond

var sweeping = []promise{
	{"sweeping/runs are deleted by the retention of their state", func(c *check) {
		for state, retention := range map[store.State]store.Retention{
			store.StateSucceeded: {Succeeded: old, Dead: time.Hour},
			store.StateDead:      {Dead: old, Canceled: time.Hour},
			store.StateCanceled:  {Canceled: old, Succeeded: time.Hour},
		} {
			ids := c.ended()
			if n := c.sweep(retention, 100); n != 1 {
				c.Errorf("%s: %d runs were deleted", state, n)
			}
			for other, id := range ids {
				if c.gone(id) != (other == state) {
					c.Errorf("%+v: a run in the state %s: deleted %t", retention, other, other != state)
				}
			}
			c.sweep(store.Retention{Succeeded: old, Dead: old, Canceled: old}, 100)
		}
	}},
	{"sweeping/0 keeps runs forever, and unfinished runs are kept", func(c *check) {
		ids := c.ended()
		if n := c.sweep(store.Retention{}, 100); n != 0 {
			c.Errorf("%d", n)
		}
		if n := c.sweep(store.Retention{Succeeded: old, Dead: old, Canceled: old}, 100); n != 3 {
			c.Errorf("%d", n)
		}
		if c.gone(ids[store.StateQueued]) || c.gone(ids[store.StateRunning]) {
			c.Error("a run that has not ended was deleted")
		}
	}},
	{"sweeping/at most the requested number, until none is left", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 7)
		c.claimRest()
		c.pass(c.now().Add(2 * old))
		for _, want := range []int{3, 3, 1, 0, 0} {
			if n := c.sweep(store.Retention{Succeeded: old}, 3); n != want {
				c.Errorf("%d, want %d", n, want)
			}
		}
	}},
	{"sweeping/by many callers at once: each run once", func(c *check) {
		c.ready(orders)
		total := 40 * c.h.Rounds
		c.inserts("orders", total)
		c.claimRest()
		c.pass(c.now().Add(2 * old))
		var deleted atomic.Int64
		c.atOnce(4, func(_ int, c *check) {
			for len(c.runs(store.Filter{}, 1)) > 0 {
				deleted.Add(int64(c.sweep(store.Retention{Succeeded: old}, 7)))
			}
		})
		if n := deleted.Load(); n != int64(total) {
			c.Errorf("%d, want %d", n, total)
		}
	}},
	{"sweeping/a requeued run is kept", func(c *check) {
		id := c.ended()[store.StateDead]
		c.requeue(store.Filter{IDs: []int64{id}}, store.Cause{})
		c.sweep(store.Retention{Dead: old}, 100)
		if c.gone(id) {
			c.Error("the requeued run was deleted")
		}
	}},
	{"sweeping/schedules and handlers that no worker has registered for Unseen", func(c *check) {
		c.register(true, []store.Handler{orders, mails}, daily, store.Schedule{Name: "hourly", Spec: "1"})
		id := c.insert(store.NewRun{Handler: "orders"})
		c.setHandler("awaited", store.Override{MaxConcurrency: ptr(1)})
		c.setSchedule("awaited", store.Override{PausedUntil: ptr(time.Hour)})
		c.sweep(store.Retention{Succeeded: old}, 100)
		c.sweep(store.Retention{Unseen: time.Hour}, 100)
		c.handler("orders")
		c.schedule("daily")
		for unseen := 500 * time.Millisecond; ; unseen *= 2 {
			c.pass(c.now().Add(unseen))
			seen := c.now()
			c.register(true, []store.Handler{mails}, store.Schedule{Name: "hourly", Spec: "1"})
			n := c.sweep(store.Retention{Unseen: unseen}, 100)
			if c.now().Sub(seen) >= unseen && unseen < time.Minute {
				// On a busy machine, rows that were just seen may count as unseen, too.
				c.register(true, []store.Handler{orders, mails}, daily, store.Schedule{Name: "hourly", Spec: "1"})
				continue
			}
			if n != 2 {
				c.Errorf("%d rows were deleted, want a handler and a schedule", n)
			}
			break
		}
		for name, want := range map[string]bool{"orders": false, "mails": true, "awaited": true} {
			if got := c.hasHandler(name); got != want {
				c.Errorf("handler %s: %t, want %t", name, got, want)
			}
		}
		for name, want := range map[string]bool{"daily": false, "hourly": true, "awaited": true} {
			if got := c.forget(name); got != want {
				c.Errorf("schedule %s: %t, want %t", name, got, want)
			}
		}
		c.inState(id, store.StateQueued, 0)
	}},
	{"sweeping/pauses and overrides stay until they are changed", func(c *check) {
		names := []string{"paused", "limited", "resumed", "reset", "over"}
		var handlers []store.Handler
		var schedules []store.Schedule
		for _, name := range names {
			handlers = append(handlers, store.Handler{Name: name})
			schedules = append(schedules, store.Schedule{Name: name, Spec: "1"})
		}
		c.register(true, handlers, schedules...)
		set := func(name string, change store.Override) {
			c.setHandler(name, change)
			c.setSchedule(name, change)
		}
		set("paused", store.Override{PausedUntil: ptr(time.Hour)})
		set("limited", store.Override{MaxConcurrency: ptr(0)})
		set("resumed", store.Override{PausedUntil: ptr(time.Hour)})
		set("resumed", store.Override{PausedUntil: ptr(time.Duration(0))})
		set("reset", store.Override{MaxConcurrency: ptr(0)})
		set("reset", store.Override{MaxConcurrency: ptr(-1)})
		set("over", store.Override{PausedUntil: ptr(old)})
		c.pass(c.now().Add(2 * old))
		if n := c.sweep(store.Retention{Unseen: old}, 100); n != 7 {
			c.Errorf("%d rows were deleted, want 3 handlers and 4 schedules", n)
		}
		for _, name := range names {
			if got, want := c.hasHandler(name), name == "paused" || name == "limited"; got != want {
				c.Errorf("handler %s: %t, want %t", name, got, want)
			}
			if got, want := c.forget(name), name == "paused"; got != want {
				c.Errorf("schedule %s: %t, want %t", name, got, want)
			}
		}
	}},
}

func (c *check) hasHandler(name string) (has bool) {
	c.Helper()
	c.call("Handlers", func(ctx context.Context) error {
		rows, err := c.Handlers(ctx)
		for _, row := range rows {
			has = has || row.Name == name
		}
		return err
	})
	return has
}
