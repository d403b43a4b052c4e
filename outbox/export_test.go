package outbox

import (
	"context"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// OnMemory returns an outbox on a store in memory with these locks.
func OnMemory(s store.Store, locks lockStore) *Outbox {
	return &Outbox{store: s, locks: &lazyLocks{kept: noTables{locks}}}
}

type lockStore interface {
	dlock.DistributedLock
	driver.Enumerator
}

// noTables are locks that need no tables.
type noTables struct{ lockStore }

func (noTables) Migrate(context.Context) error { return nil }
func (noTables) Verify(context.Context) error  { return nil }
func (noTables) Schema() ([]string, error)     { return nil, nil }
func (noTables) Close() error                  { return nil }

// Lead delivers the messages of a term's shard until ctx ends, even if the term is over.
func (r *Relay) Lead(ctx context.Context, term *leader.Term) {
	r.calls.Begin(ctx)
	newShard(r, store.Layout{Shards: 1, Epoch: 1}, term).run(ctx)
}

// Defaults is what stands for the zero value.
func Defaults() RelayConfig { return RelayConfig{}.withDefaults() }

// Hash is what is stored in key_hash.
func (m Message) Hash() uint32 { return m.hash() }
