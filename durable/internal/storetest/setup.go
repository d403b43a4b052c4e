package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var setUp = []promise{
	{"set up/the schema is there, and Migrate can be called again", func(c *check) {
		if c.String() == "" {
			c.Error("String is empty")
		}
		c.call("Verify", c.Verify)
		c.atOnce(3, func(_ int, c *check) { c.call("Migrate", c.Migrate) })
		c.call("Verify", c.Verify)
		if list, err := c.Schema(); err != nil || len(list) == 0 && !c.h.Virtual {
			c.Errorf("Schema: %d statements, %v", len(list), err)
		}
		c.nothing()
	}},
	{"set up/empty tables have nothing, and empty calls do nothing", func(c *check) {
		c.nothing()
		if d := c.due(); len(d.Schedules) != 0 || !d.Next.IsZero() || d.Now.IsZero() {
			c.Errorf("Due: %+v", d)
		}
		if got := c.claim(request(10, orders)); len(got.Runs) != 0 || !got.Next.IsZero() || got.Now.IsZero() {
			c.Errorf("Claim: %+v", got)
		}
		c.claims(0, request(10))
		c.register(true, nil)
		c.insert(store.NewRun{Handler: "orders"})
		c.claims(0, request(0, orders))
		c.claims(0, request(10))
		if done, renewed, counted := c.materialize(), c.renew(worker), c.finish(); len(done)+len(renewed)+
			len(counted) != 0 {
			c.Errorf("%v, %v, %v", done, renewed, counted)
		}
		if n := c.reclaim(10); len(n) != 0 {
			c.Errorf("Reclaim: %+v", n)
		}
		if n := c.sweep(store.Retention{Succeeded: 1, Dead: 1, Canceled: 1, Unseen: 1}, 0); n != 0 {
			c.Errorf("Sweep with the limit 0 deletes %d", n)
		}
	}},
	{"set up/a method returns when its context has ended", func(c *check) {
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		for name, call := range c.everything() {
			if err := call(ended); !errors.Is(err, context.Canceled) {
				c.Errorf("%s with a canceled context: %v", name, err)
			}
		}
		c.nothing()
	}},
	{"set up/all instants are whole microseconds", func(c *check) {
		c.ready(orders)
		c.insert(store.NewRun{Handler: "orders", RunIn: 1234567 * time.Nanosecond})
		run, _ := c.run(c.insert(store.NewRun{Handler: "orders"}))
		for _, at := range []time.Time{c.now(), run.CreatedAt, run.RunAt, c.handler("orders").SeenAt} {
			if !at.Equal(at.Truncate(time.Microsecond)) {
				c.Errorf("%v", at)
			}
		}
	}},
}

// nothing fails the test unless all tables are empty.
func (c *check) nothing() {
	c.Helper()
	if runs := c.runs(store.Filter{}, 10); len(runs) != 0 {
		c.Errorf("there are runs: %+v", runs)
	}
	c.call("Schedules and Handlers", func(ctx context.Context) error {
		schedules, err := c.Schedules(ctx)
		handlers, err2 := c.Handlers(ctx)
		for _, h := range handlers {
			if h.Name != "" {
				c.Errorf("there is a handler: %+v", h)
			}
		}
		if len(schedules) != 0 {
			c.Errorf("there are schedules: %+v", schedules)
		}
		return errors.Join(err, err2)
	})
	if s := c.stats(); len(s.ByHandler) != 0 || !s.OldestDue.IsZero() || !s.Overdue.IsZero() || s.Now.IsZero() {
		c.Errorf("Stats: %+v", s)
	}
}

// everything returns a call of every method that uses the database.
func (c *check) everything() map[string]func(context.Context) error {
	key := store.RunKey{ID: 1, Attempt: 1}
	return map[string]func(context.Context) error{
		"Migrate": c.Migrate, "Verify": c.Verify, "Notify": c.Notify,
		"Register": func(ctx context.Context) error {
			return c.Register(ctx, worker, []store.Handler{orders}, []store.Schedule{daily}, true)
		},
		"Due": func(ctx context.Context) error { _, err := c.Due(ctx, store.DueSchedule{}, 1000); return err },
		"Materialize": func(ctx context.Context) error {
			_, err := c.Materialize(ctx, []store.Plan{{Schedule: store.DueSchedule{Name: "daily", Spec: "1"}}})
			return err
		},
		"Claim": func(ctx context.Context) error { _, err := c.Claim(ctx, request(10, orders)); return err },
		"Renew": func(ctx context.Context) error {
			_, err := c.Renew(ctx, worker, []store.RunKey{key}, lease)
			return err
		},
		"Finish": func(ctx context.Context) error {
			_, err := c.Finish(ctx, worker, []store.Result{succeeded(store.Run{RunKey: key})})
			return err
		},
		"Reclaim": func(ctx context.Context) error { _, err := c.Reclaim(ctx, 10, 5); return err },
		"Sweep": func(ctx context.Context) error {
			_, err := c.Sweep(ctx, store.Retention{Succeeded: 1, Unseen: 1}, 10)
			return err
		},
		"Stats": func(ctx context.Context) error { _, err := c.Stats(ctx, lease); return err },
		"Insert": func(ctx context.Context) error {
			_, err := c.Insert(ctx, nil, store.NewRun{Handler: "orders"})
			return err
		},
		"Cancel": func(ctx context.Context) error { _, err := c.Cancel(ctx, 1, store.Cause{}); return err },
		"Requeue": func(ctx context.Context) error {
			_, _, err := c.Requeue(ctx, store.Filter{}, store.Cause{}, 10)
			return err
		},
		"SetHandler": func(ctx context.Context) error {
			return c.SetHandler(ctx, "orders", store.Override{MaxConcurrency: ptr(1)})
		},
		"SetSchedule": func(ctx context.Context) error {
			return c.SetSchedule(ctx, "daily", store.Override{PausedUntil: ptr(time.Hour)})
		},
		"Forget":    func(ctx context.Context) error { _, err := c.Forget(ctx, "daily"); return err },
		"Runs":      func(ctx context.Context) error { _, err := c.Runs(ctx, store.Filter{}, 10); return err },
		"Run":       func(ctx context.Context) error { _, _, _, err := c.Run(ctx, 1); return err },
		"Schedules": func(ctx context.Context) error { _, err := c.Schedules(ctx); return err },
		"Flow":      func(ctx context.Context) error { _, err := c.Flow(ctx); return err },
		"Handlers":  func(ctx context.Context) error { _, err := c.Handlers(ctx); return err },
	}
}
