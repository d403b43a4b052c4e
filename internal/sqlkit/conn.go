package sqlkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// With calls do with a connection. A connection that was closed while idle is replaced, as
// database/sql would do. A connection to a server that has become read-only is discarded, so that
// the next call can reach the new primary.
func With(ctx context.Context, db *sql.DB, do func(*sql.Conn) error) error {
	for tries := 0; ; tries++ {
		conn, err := db.Conn(ctx)
		if err != nil {
			if s := db.Stats(); ctx.Err() != nil && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
				return fmt.Errorf("all %d connections of the pool are in use: give the store a *sql.DB of its own: %w",
					s.InUse, err)
			}
			return err
		}
		err = do(conn)
		if State(err) == ReadOnly {
			Discard(conn)
		}
		_ = conn.Close()
		if !errors.Is(err, driver.ErrBadConn) || tries == MaxStale {
			return err
		}
	}
}

// Discard removes a connection from the pool.
func Discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
