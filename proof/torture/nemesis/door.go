//go:build linux

package nemesis

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// A Door is a process's connection to the database.
type Door struct {
	Pool *pgxpool.Pool // nil unless it is Postgres
	DB   *sql.DB
	File bool // it is SQLite
}

// A Tx is a transaction of the application, of pgx or of database/sql.
type Tx struct {
	Pgx pgx.Tx
	SQL *sql.Tx
}

// Open opens a connection pool. It does not call the database.
func Open(way Way) (*Door, error) {
	switch {
	case strings.Contains(way.DSN, "@tcp("):
		db, err := sql.Open("mysql", way.DSN)
		if err == nil {
			db.SetMaxOpenConns(16)
			db.SetMaxIdleConns(16)
		}
		return &Door{DB: db}, err
	case !strings.HasPrefix(way.DSN, "postgres:"):
		return openFile(way.DSN)
	}
	config, err := pgxpool.ParseConfig(way.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	if !way.Prepares {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return &Door{Pool: pool, DB: stdlib.OpenDBFromPool(pool)}, nil
}

func openFile(path string) (*Door, error) {
	dsn := url.URL{Scheme: "file", Path: path,
		RawQuery: "_pragma=synchronous(normal)&_pragma=busy_timeout(2000)&_txlock=immediate"}
	if !slices.Contains(sql.Drivers(), "sqlite") {
		return nil, errors.New("SQLite is not built in: go run -tags sqlite")
	}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(6)
	return &Door{DB: db, File: true}, nil
}

// Close closes its connections.
func (d *Door) Close() {
	_ = d.DB.Close()
	if d.Pool != nil {
		d.Pool.Close()
	}
}

// Begin begins a transaction, of pgx if native is set and there is one, otherwise of database/sql.
func (d *Door) Begin(ctx context.Context, native bool) (tx Tx, err error) {
	if d.Pool != nil && native {
		tx.Pgx, err = d.Pool.Begin(ctx)
	} else {
		tx.SQL, err = d.DB.BeginTx(ctx, nil)
	}
	if err != nil || d.Pool == nil {
		return tx, err
	}
	// If it is cut off within its transaction, it would keep its locks forever, as docs/durable.md
	// says. A lock on the whole table would wait for it, and all others for that lock.
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = '10s'"); err != nil {
		tx.Rollback(ctx)
		return Tx{}, err
	}
	return tx, nil
}

// Exec executes a statement without parameters, and returns the number of changed rows.
func (t Tx) Exec(ctx context.Context, query string) (int64, error) {
	if t.Pgx != nil {
		tag, err := t.Pgx.Exec(ctx, query)
		return tag.RowsAffected(), err
	}
	result, err := t.SQL.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Int returns the single number that a query returns.
func (t Tx) Int(ctx context.Context, query string) (n int64, err error) {
	if t.Pgx != nil {
		err = t.Pgx.QueryRow(ctx, query).Scan(&n)
	} else {
		err = t.SQL.QueryRowContext(ctx, query).Scan(&n)
	}
	return n, err
}

// Commit commits the transaction.
func (t Tx) Commit(ctx context.Context) error {
	if t.Pgx != nil {
		return t.Pgx.Commit(ctx)
	}
	return t.SQL.Commit()
}

// Rollback rolls back the transaction. It ignores an error, because then the connection is gone.
func (t Tx) Rollback(ctx context.Context) {
	if t.Pgx != nil {
		_ = t.Pgx.Rollback(ctx)
		return
	}
	_ = t.SQL.Rollback()
}
