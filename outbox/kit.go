package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/outbox/internal/kit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// init gives package outboxtest access to internals that users do not need.
func init() {
	kit.New = func(s store.Store, locks kit.Locks) any {
		return &Outbox{store: s, locks: &lazyLocks{kept: noTables{locks}}}
	}
	kit.StoreOf = func(of any) (store.Store, error) {
		o, _ := of.(*Outbox)
		if r, ok := of.(*Relay); ok {
			if r == nil {
				return nil, errors.New("the relay is nil: make one with outbox.NewRelay")
			}
			o = r.outbox
		}
		if err := o.ready(context.Background()); err != nil {
			return nil, err
		}
		return o.store, nil
	}
	kit.OutboxOf = func(relay any) any { return relay.(*Relay).outbox }
	kit.Deliver = func(ctx context.Context, relay, delivery any) (any, error) {
		return relay.(*Relay).deliverOnce(ctx, delivery.(Delivery))
	}
}

// noTables wraps locks that need no tables.
type noTables struct{ kit.Locks }

func (noTables) Migrate(context.Context) error { return nil }
func (noTables) Verify(context.Context) error  { return nil }
func (noTables) Schema() ([]string, error)     { return nil, nil }
func (noTables) Close() error                  { return nil }

// deliverOnce delivers a message as deliver does, on this goroutine, and writes nothing. Zero
// fields of the delivery get the values of a first attempt.
func (r *Relay) deliverOnce(base context.Context, d Delivery) (info AttemptInfo, err error) {
	if d.ID == (ID{}) {
		d.ID = RandomID()
	}
	if err := d.check(); err != nil {
		return info, fmt.Errorf("no producer can append such a message: %w", err)
	}
	m := store.Pending{Message: d.row(), Seq: cmp.Or(d.Seq, 1), Attempts: max(1, d.Attempt) - 1, Age: d.Age}
	ctx, cancel := context.WithTimeoutCause(base, r.config.DeliverTimeout, errTimeout)
	defer cancel()
	began := time.Now()
	err = guard.Call("sink", func() error { return r.try(ctx, m) })
	return r.attempt(m, time.Since(began), err, context.Cause(ctx), false).info(), nil
}
