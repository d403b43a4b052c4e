package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A statement is one statement of a transaction.
type statement struct {
	text string
	args []any
	row  func(pgx.Rows) error // called for each row; nil to ignore the rows
}

// A source lends a connection for one call.
type source func(ctx context.Context, call func(*pgx.Conn) error) error

// owned lends one of the store's own connections.
func (s *Store) owned(ctx context.Context, call func(*pgx.Conn) error) error {
	conn, err := s.own.take(ctx)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { s.own.give(conn, err) }() // deferred, because a tracer of the application may panic
	err = call(conn)
	return err
}

var errPanicked = errors.New("the call panicked")

// shared lends a connection of the application's pool.
func (s *Store) shared(ctx context.Context, call func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = call(conn.Conn())
	if sqlkit.State(err) == sqlkit.ReadOnly { // the next call should reach the new primary
		pgxkit.HangUp(conn.Conn())
	}
	return err
}

// call executes statements in one transaction and one round trip. If the transaction conflicts with
// another, call calls statements again and repeats it, until ctx ends.
func (s *Store) call(ctx context.Context, from source, statements func() []statement) error {
	if err := ctx.Err(); err != nil {
		return sqlkit.Explain(err)
	}
	return s.explain(ctx, from, sqlkit.Repeat(ctx, func() error {
		return from(ctx, func(conn *pgx.Conn) error { return transact(ctx, conn, statements()) })
	}))
}

func transact(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	return pgxkit.Transact(ctx, conn, func(b *pgx.Batch) {
		for _, st := range statements {
			if q := b.Queue(st.text, st.args...); st.row != nil {
				pgxkit.EachRow(q, st.row)
			}
		}
	})
}
