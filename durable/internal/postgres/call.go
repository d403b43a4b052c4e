package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A statement is one of a transaction.
type statement struct {
	text string
	args []any
	row  func(pgx.Rows) error // is called for each row; nil: there are none, or they are not wanted
}

// A source has a connection for a call.
type source func(ctx context.Context, call func(*pgx.Conn) error) error

// owned has one of the store's own connections.
func (s *Store) owned(ctx context.Context, call func(*pgx.Conn) error) error {
	conn, err := s.own.take(ctx)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { s.own.give(conn, err) }() // deferred: a tracer of the application may panic
	err = call(conn)
	return err
}

var errPanicked = errors.New("the call panicked")

// shared has one of the application's pool.
func (s *Store) shared(ctx context.Context, call func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = call(conn.Conn())
	if sqlkit.State(err) == sqlkit.ReadOnly { // the next call should reach the new primary
		hangUp(conn.Conn())
	}
	return err
}

// call executes statements in one transaction and one round trip. After a deadlock or a
// serialization failure it calls statements again and repeats the transaction, until ctx ends.
func (s *Store) call(ctx context.Context, from source, statements func() []statement) error {
	for {
		if err := ctx.Err(); err != nil {
			return sqlkit.Explain(err)
		}
		err := from(ctx, func(conn *pgx.Conn) error { return s.transact(ctx, conn, statements()) })
		if state := sqlkit.State(err); state != "40001" && state != "40P01" {
			return s.explain(ctx, from, err)
		}
		select {
		case <-ctx.Done():
			return sqlkit.Explain(err)
		case <-time.After(time.Millisecond):
		}
	}
}

// transact sends a transaction as a whole. It always sees what others have committed before each of
// its statements, whatever the default level is.
func (s *Store) transact(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	longest := sqlkit.LastResort
	if deadline, ok := ctx.Deadline(); ok {
		longest = max(10*time.Millisecond, min(time.Until(deadline), time.Hour))
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	// The error of a lock still reaches the caller.
	b.Queue(s.texts["begin"], ms(longest*9/10), ms(longest))
	for _, st := range statements {
		q := b.Queue(st.text, st.args...)
		if st.row != nil {
			q.Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := st.row(rows); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		}
	}
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
			hangUp(conn)
		}
	}
	return err
}
