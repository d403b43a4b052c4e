package sqlstore

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Notify implements store.Producer. Only Postgres can wake other processes.
func (s *Store) Notify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if s.dialect != sqlkit.Postgres {
		return nil
	}
	_, err := answer(ctx, s, reading, "notify", "", sqlkit.Params{"channel": s.channel},
		func(store.Row, *struct{}) error { return nil })
	return err
}

// Listen implements store.Relay. Behind a PgBouncer in transaction mode, Listen receives nothing
// without noticing.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	if s.listen == nil {
		return store.ErrNoListen
	}
	if err := s.listen(ctx, s.channel, woken); err != nil {
		return s.explain(err)
	}
	return nil
}
