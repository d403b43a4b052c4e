package storetest

import (
	"context"
	"errors"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

var setUp = []promise{
	{"set up/the schema is there, and Migrate can be called again", func(c *check) {
		if c.String() == "" {
			c.Error("String is empty")
		}
		c.call("Verify", c.Verify)
		c.call("Migrate", c.Migrate)
		if list, err := c.Schema(); err != nil || len(list) == 0 && !c.h.Virtual {
			c.Errorf("Schema: %d statements, %v", len(list), err)
		}
		c.isDue(request())
	}},
	{"set up/a method returns when its context has ended", func(c *check) {
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		for name, call := range c.everything() {
			if err := call(ended); !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrNoListen) {
				c.Errorf("%s with a canceled context: %v", name, err)
			}
		}
	}},
}

// everything returns a call of every method that uses the database, except those in a transaction.
func (c *check) everything() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Migrate": c.Migrate, "Verify": c.Verify, "Notify": c.Notify,
		"Layout": func(ctx context.Context) error { _, err := c.Layout(ctx, 2); return err },
		"Due":    func(ctx context.Context) error { _, err := c.Due(ctx, request()); return err },
		"Mark": func(ctx context.Context) error {
			_, err := c.Mark(ctx, node, []store.Result{{Seq: 1, Outcome: store.OutcomeOK}})
			return err
		},
		"NoteBegun": func(ctx context.Context) error { return c.NoteBegun(ctx, []store.Begun{{Seq: 1}}) },
		"Sweep": func(ctx context.Context) error {
			_, err := c.Sweep(ctx, store.Retention{Dispatched: 1, Dead: 1, Inbox: 1}, 10)
			return err
		},
		"Flow":    func(ctx context.Context) error { _, err := c.Flow(ctx); return err },
		"Topics":  func(ctx context.Context) error { _, err := c.Topics(ctx); return err },
		"Failing": func(ctx context.Context) error { _, err := c.Failing(ctx); return err },
		"Stats":   func(ctx context.Context) error { _, err := c.Stats(ctx, nil, false); return err },
		"Listen":  func(ctx context.Context) error { return c.Listen(ctx, func() {}) },
		"Messages": func(ctx context.Context) error {
			_, err := c.Messages(ctx, store.Filter{}, 10)
			return err
		},
		"Message": func(ctx context.Context) error { _, _, _, err := c.Message(ctx, store.ID{}); return err },
		"Requeue": func(ctx context.Context) error {
			_, err := c.Requeue(ctx, store.Filter{}, store.RequeueRequest{Limit: 10})
			return err
		},
		"Delete": func(ctx context.Context) error { _, err := c.Delete(ctx, store.Filter{}); return err },
	}
}
