package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Driver executes the statements of a store. It is database/sql, except for Postgres, where package pgxlock has one for pgx.
type Driver interface {
	// QueryRow executes a statement that returns one row, and puts its columns into dest. It returns when ctx ends, whatever the
	// server does.
	QueryRow(ctx context.Context, query string, args []any, dest ...any) error
	// Exec executes statements without arguments. On Postgres there may be several, which are then one transaction.
	Exec(ctx context.Context, statements string) error
	// Close closes the connections that the driver opened itself.
	Close() error
}

// sqlDB is the Driver for database/sql.
type sqlDB struct{ db *sql.DB }

var errNoDB = errors.New("sqllock: no *sql.DB: pass one")

func newSQLDB(db *sql.DB) (sqlDB, error) {
	if db == nil {
		return sqlDB{}, errNoDB
	}
	return sqlDB{db}, nil
}

func (d sqlDB) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return d.with(ctx, func(conn *sql.Conn) error { return conn.QueryRowContext(ctx, query, args...).Scan(dest...) })
}

func (d sqlDB) Exec(ctx context.Context, statements string) error {
	return d.with(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statements)
		return err
	})
}

// Close leaves the *sql.DB alone: it is the caller's.
func (d sqlDB) Close() error { return nil }

// with calls do with a connection. One that was closed while it lay idle is replaced, as database/sql would do; one to a server that has become
// read-only is not used again, so that the next call can reach its successor.
func (d sqlDB) with(ctx context.Context, do func(*sql.Conn) error) error {
	for tries := 0; ; tries++ {
		conn, err := d.db.Conn(ctx)
		if err != nil {
			if s := d.db.Stats(); ctx.Err() != nil && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
				return fmt.Errorf("all %d connections of the pool are in use: give the store a *sql.DB of its own: %w", s.InUse, err)
			}
			return err
		}
		err = do(conn)
		if sqlkit.State(err) == sqlkit.ReadOnly {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close()
		if !errors.Is(err, driver.ErrBadConn) || tries == sqlkit.MaxStale {
			return err
		}
	}
}
