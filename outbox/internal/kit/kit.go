// Package kit lets package outboxtest use internals of package outbox, which sets these variables.
// So users do not see methods that only tests may call.
package kit

import (
	"context"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Locks are the locks of the relays.
type Locks interface {
	dlock.DistributedLock
	driver.Enumerator
}

var (
	// New returns an *outbox.Outbox.
	New func(s store.Store, locks Locks) any
	// StoreOf returns the internal store of an *outbox.Outbox or an *outbox.Relay.
	StoreOf func(outboxOrRelay any) (store.Store, error)
	// OutboxOf returns the *outbox.Outbox of an *outbox.Relay.
	OutboxOf func(relay any) any
	// Deliver passes an outbox.Delivery to the sink of its topic once, on this goroutine, as an
	// *outbox.Relay does. It returns an outbox.AttemptInfo.
	Deliver func(ctx context.Context, relay, delivery any) (info any, err error)
)
