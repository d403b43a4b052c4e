// Package pgxkit connects to Postgres with pgx and executes transactions.
package pgxkit

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// closeTimeout bounds the time for a connection to close, including the message to the server, and
// for leaving a failed transaction.
const closeTimeout = time.Second

// connectTime bounds a connection attempt, unless the application sets its own limit of at most
// maxConnectTime.
const connectTime, maxConnectTime = 2 * time.Second, 10 * time.Second

// BoundConnecting bounds the time to connect. An attempt that gets no answer occupies a place in a
// pool until it times out. With the usual two minutes, a network outage of seconds would make the
// database unreachable for minutes. A failed connection also keeps its place while pgx connects to
// its server to cancel the statement, which takes 15 s if that server is unreachable.
func BoundConnecting(c *pgx.ConnConfig) {
	if t := c.ConnectTimeout; t <= 0 || t > maxConnectTime {
		c.ConnectTimeout = connectTime
	}
	dial, most := c.DialFunc, c.ConnectTimeout
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// Transact executes the statements that queue adds to a batch in one transaction, which is sent as
// a whole in one round trip. Its session has the settings of sqlkit.PostgresPinned. After an error
// the connection is outside of a transaction. If it cannot leave the transaction, it is closed.
func Transact(ctx context.Context, conn *pgx.Conn, queue func(*pgx.Batch)) error {
	var b pgx.Batch
	b.Queue(sqlkit.PostgresBegin)
	text, args := sqlkit.PostgresPinned(ctx)
	b.Queue(text, args...)
	queue(&b)
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return fmt.Errorf("the transaction was not committed, but %q", tag)
		}
		return nil
	})
	err := conn.SendBatch(ctx, &b).Close()
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			HangUp(conn)
		}
	}
	return err
}

// EachRow calls row for each row of a statement's result until row fails.
func EachRow(q *pgx.QueuedQuery, row func(pgx.Rows) error) {
	q.Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := row(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// HangUp closes a connection.
func HangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
