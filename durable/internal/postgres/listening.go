package postgres

import (
	"context"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Notify implements store.Worker.
func (s *Store) Notify(ctx context.Context) error {
	return s.call(ctx, s.owned, func() []statement {
		return []statement{{text: "SELECT pg_notify($1::text, '')", args: []any{s.channel}}}
	})
}

// Listen implements store.Worker. Behind a PgBouncer in transaction mode, Listen may receive no
// notifications and return no error.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	conn, err := pgxkit.Connect(ctx, s.own.config)
	if err != nil {
		return sqlkit.Explain(err)
	}
	return sqlkit.Explain(pgxkit.Listen(ctx, conn, s.channel, woken))
}
