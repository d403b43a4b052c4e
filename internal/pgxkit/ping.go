package pgxkit

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ShouldPing is a pgxpool.Config.ShouldPing. A ping costs a round trip, so a connection is pinged
// only if something has arrived on it since it was last used: its end, the server's last word, or
// the value of a setting that has changed. To look costs about a microsecond. A connection that is
// no socket of Unix is pinged after a second, as pgxpool does by default.
func ShouldPing(_ context.Context, p pgxpool.ShouldPingParams) bool {
	conn := p.Conn.PgConn().Conn()
	for {
		inner, wraps := conn.(interface{ NetConn() net.Conn })
		if !wraps {
			break
		}
		conn = inner.NetConn()
	}
	arrived, known := hasInput(conn)
	return arrived || !known && p.IdleDuration > time.Second
}
