package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

const (
	// pingEvery is how often a connection that has heard nothing asks whether the server is there:
	// a link that is dead says nothing either.
	pingEvery   = 30 * time.Second
	pingTimeout = 5 * time.Second
)

// Notify implements store.Worker.
func (s *Store) Notify(ctx context.Context) error {
	return s.call(ctx, s.owned, func() []statement {
		return []statement{{text: "SELECT pg_notify($1::text, '')", args: []any{s.channel}}}
	})
}

// Listen implements store.Worker. Behind a PgBouncer in transaction mode it may hear nothing, and
// does not know.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	return s.listen(ctx, woken, pingEvery)
}

func (s *Store) listen(ctx context.Context, woken func(), pingEvery time.Duration) error {
	conn, err := s.own.connect(ctx)
	if err != nil {
		return sqlkit.Explain(err)
	}
	defer pgxkit.HangUp(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+sqlmigrate.DialectPostgres.Quote(s.channel)); err != nil {
		return sqlkit.Explain(err)
	}
	for woken(); ; {
		heard, err := wait(ctx, conn, pingEvery)
		switch {
		case ctx.Err() != nil:
			return sqlkit.Explain(ctx.Err())
		case err != nil:
			return sqlkit.Explain(err)
		case heard:
			woken()
		}
	}
}

// wait waits for a notification, and after some time looks whether the server is there.
func wait(ctx context.Context, conn *pgx.Conn, pingEvery time.Duration) (heard bool, err error) {
	quiet, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	if _, err := conn.WaitForNotification(quiet); err == nil || quiet.Err() == nil || conn.IsClosed() {
		return err == nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := conn.Ping(ctx); err != nil {
		return false, fmt.Errorf("the server no longer answers: %w", err)
	}
	return false, nil
}
