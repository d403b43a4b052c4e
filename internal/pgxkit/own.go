package pgxkit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// applicationName is the session setting that pg_stat_activity and the server's log show.
const applicationName = "application_name"

// OwnPool returns the settings of a separate pool with at most the given number of connections.
// They are those of the application's pool, without the hooks that run when a connection leaves or
// enters the pool. So the application's use of its connections delays no call here. In
// pg_stat_activity the connections are called name, unless the application sets an
// application_name.
func OwnPool(pool *pgxpool.Pool, most int32, name string) *pgxpool.Config {
	config := pool.Config()
	if config.ConnConfig.RuntimeParams == nil {
		config.ConnConfig.RuntimeParams = make(map[string]string)
	}
	if params := config.ConnConfig.RuntimeParams; params[applicationName] == "" {
		params[applicationName] = name
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = min(config.MaxConns, most), 0, 0
	// PrepareConn also replaces BeforeAcquire.
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	config.AfterRelease = nil
	// A ping would be a second round trip.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	BoundConnecting(config.ConnConfig)
	return config
}

// Connect opens a connection as a pool with these settings would.
func Connect(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	c := config.ConnConfig.Copy()
	if before := config.BeforeConnect; before != nil {
		if err := before(ctx, c); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	ready := false
	defer func() { // deferred, because the application's code may panic while connecting
		if !ready {
			HangUp(conn)
		}
	}()
	if after := config.AfterConnect; after != nil {
		if err := after(ctx, conn); err != nil {
			return nil, err
		}
	}
	ready = true
	return conn, nil
}

// used is the key under which a connection's time of last use is stored.
const used = "tickslot: used"

// Used records that a connection has been used.
func Used(conn *pgx.Conn) { conn.PgConn().CustomData()[used] = time.Now() }

// IsAlive reports whether a connection is still open, that is, whether the server has not closed it
// while it was idle. It takes no round trip. The ping of pgxpool takes one. With that ping, a dead
// connection also keeps its place in the pool until it is closed, which takes up to 15 s if the
// network is silent.
func IsAlive(conn *pgx.Conn) bool {
	for range 100 {
		arrived, known := HasInput(conn.PgConn().Conn())
		last, ok := conn.PgConn().CustomData()[used].(time.Time)
		switch {
		case known && !arrived:
			return true
		case !known && (!ok || time.Since(last) < time.Second):
			return true // CheckConn waits for a millisecond, which not every call should take
		}
		// Input is either the server's last message or the new value of a setting. On a busy
		// machine, the millisecond may be over before CheckConn reads it.
		//nolint:staticcheck // Ping costs a round trip; if this is wrong, the call fails.
		if err := conn.PgConn().CheckConn(); err != nil || !known {
			return err == nil
		}
	}
	return true // it sends continuously
}
