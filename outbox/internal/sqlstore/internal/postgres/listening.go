package postgres

import (
	"context"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Listen hears nothing behind a PgBouncer in transaction mode, and does not know.
func (p *database) Listen(ctx context.Context, woken func()) error {
	if p.connect == nil {
		return store.ErrNoListen
	}
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	return pgxkit.Listen(ctx, conn, p.channel, woken)
}
