package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Driver executes statements. Pool is one for database/sql, package pgxlock has one for pgx.
type Driver interface {
	// QueryRow executes a statement that returns one row, and puts its columns into dest. It
	// returns when ctx ends, whatever the server does.
	QueryRow(ctx context.Context, query string, args []any, dest ...any) error
	// WithDB calls do with a *sql.DB on the same connections, for Migrate.
	WithDB(do func(*sql.DB) error) error
	// Close closes the connections that the driver opened itself.
	Close() error
}

// Pool is the Driver for database/sql.
type Pool struct{ DB *sql.DB }

var errNoDB = errors.New("sqllock: no *sql.DB: pass one")

// NewPool returns an error if db is nil.
func NewPool(db *sql.DB) (Pool, error) {
	if db == nil {
		return Pool{}, errNoDB
	}
	return Pool{db}, nil
}

// QueryRow implements Driver.
func (p Pool) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return p.With(ctx, func(conn *sql.Conn) error { return sqlkit.QueryRow(ctx, conn, query, args, dest...) })
}

// WithDB implements Driver.
func (p Pool) WithDB(do func(*sql.DB) error) error { return do(p.DB) }

// Close leaves the *sql.DB alone: it is the caller's.
func (p Pool) Close() error { return nil }

// With calls do with a connection. A connection that was closed while it was idle is replaced, as
// database/sql would do. A connection to a server that has become read-only is discarded, so that
// the next call can reach the new primary.
func (p Pool) With(ctx context.Context, do func(*sql.Conn) error) error {
	for tries := 0; ; tries++ {
		conn, err := p.DB.Conn(ctx)
		if err != nil {
			if s := p.DB.Stats(); ctx.Err() != nil && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
				return fmt.Errorf("all %d connections of the pool are in use: give the store a *sql.DB of its own: %w",
					s.InUse, err)
			}
			return err
		}
		err = do(conn)
		if sqlkit.State(err) == sqlkit.ReadOnly {
			Discard(conn)
		}
		_ = conn.Close()
		if !errors.Is(err, driver.ErrBadConn) || tries == sqlkit.MaxStale {
			return err
		}
	}
}

// Discard removes a connection from the pool.
func Discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
