package pgxkit

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsAlive reports whether the server has not closed a connection that nobody uses. It costs no
// round trip. pgx's own check waits for a millisecond, and sees nothing if this process does not
// get the processor in that time.
func IsAlive(conn *pgconn.PgConn) bool {
	socket := conn.Conn()
	for {
		inner, wraps := socket.(interface{ NetConn() net.Conn })
		if !wraps {
			break
		}
		socket = inner.NetConn()
	}
	for range 100 {
		arrived, known := hasInput(socket)
		if known && !arrived {
			return true
		}
		// What has arrived unasked is the server's last word, a setting that has changed, or a
		// ticket of TLS.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := conn.ReceiveMessage(ctx)
		cancel()
		switch {
		case err != nil && !pgconn.Timeout(err):
			return false
		case !known:
			return true
		}
	}
	return true // it talks all the time
}
