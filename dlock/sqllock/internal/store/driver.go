package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Driver executes statements. Pool implements it with database/sql, and package pgxlock with pgx.
type Driver interface {
	// QueryRow executes a statement that returns one row, and copies its columns to dest. It
	// returns when ctx ends, even if the server does not answer.
	QueryRow(ctx context.Context, query string, args []any, dest ...any) error
	// QueryRowAlone is like QueryRow, but uses a new transaction with the settings of
	// sqlkit.PostgresPinned. Only Postgres needs it.
	QueryRowAlone(ctx context.Context, query string, args []any, dest ...any) error
	// WithDB calls do with a *sql.DB on the same connections, for Migrate.
	WithDB(do func(*sql.DB) error) error
	// Close closes the connections that the driver opened itself.
	Close() error
}

// Pool is the Driver on database/sql.
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

// QueryRowAlone implements Driver.
func (p Pool) QueryRowAlone(ctx context.Context, query string, args []any, dest ...any) error {
	return p.With(ctx, func(conn *sql.Conn) error { return sqlkit.QueryRowPinned(ctx, conn, query, args, dest...) })
}

// WithDB implements Driver.
func (p Pool) WithDB(do func(*sql.DB) error) error { return do(p.DB) }

// Close does nothing, because the caller owns the *sql.DB.
func (p Pool) Close() error { return nil }

// With calls do with a connection: see sqlkit.With.
func (p Pool) With(ctx context.Context, do func(*sql.Conn) error) error {
	return sqlkit.With(ctx, p.DB, do)
}
