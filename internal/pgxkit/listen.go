package pgxkit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// pingTimeout is how long a server may take to answer a ping.
const pingTimeout = 5 * time.Second

// pingEvery is the interval at which a silent connection pings the server, because a dead link is
// silent too.
var pingEvery = 30 * time.Second // tests lower it

// Listen listens on a channel with its own connection, which it closes in the end. It calls woken
// when it has begun to listen and for each notification. It returns when ctx or the connection
// ends. Behind a PgBouncer in transaction mode, it may receive nothing and cannot detect that.
func Listen(ctx context.Context, conn *pgx.Conn, channel string, woken func()) error {
	defer HangUp(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	for woken(); ; {
		heard, err := wait(ctx, conn)
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

// wait waits for a notification, and pings the server after pingEvery.
func wait(ctx context.Context, conn *pgx.Conn) (heard bool, err error) {
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
