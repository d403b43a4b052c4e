package outbox

import (
	"context"

	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox/internal/kit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// OnMemory returns an Outbox on an in-memory store with the given locks.
func OnMemory(s store.Store, locks kit.Locks) *Outbox { return kit.New(s, locks).(*Outbox) }

// Lead delivers the messages of a term's shard until ctx ends, even if the term is over.
func (r *Relay) Lead(ctx context.Context, term *leader.Term) {
	r.calls.Begin(ctx)
	newShard(r, store.Layout{Shards: 1, Epoch: 1}, term).run(ctx)
}

// Defaults returns a zero RelayConfig with all defaults filled in.
func Defaults() RelayConfig { return RelayConfig{}.withDefaults() }

// Hash returns the value of the column key_hash.
func (m Message) Hash() uint32 { return m.hash() }

// Defaults that tests use in calculations.
const (
	DefaultMaxElapsedTime = defaultMaxElapsedTime
	DefaultMaxWait        = defaultMaxWait
	DefaultBatchSize      = defaultBatchSize
	DefaultCallTimeout    = defaultCallTimeout
	DefaultInboxRetention = defaultInboxRetention
	DefaultWindow         = defaultWindow
)
