package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// pingEvery is how often a connection that has heard nothing asks whether the server is there:
	// a link that is dead says nothing either.
	pingEvery   = 30 * time.Second
	pingTimeout = 5 * time.Second

	// closeTimeout bounds how long a connection takes to close: it tells the server first.
	closeTimeout = time.Second
)

// Listen hears nothing behind a PgBouncer in transaction mode, and does not know.
func (p *database) Listen(ctx context.Context, woken func()) error {
	return p.listenAndPing(ctx, woken, pingEvery)
}

func (p *database) listenAndPing(ctx context.Context, woken func(), pingEvery time.Duration) error {
	if p.connect == nil {
		return store.ErrNoListen
	}
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+sqlmigrate.DialectPostgres.Quote(p.channel)); err != nil {
		return err
	}
	for woken(); ; {
		heard, err := wait(ctx, conn, pingEvery)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
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
