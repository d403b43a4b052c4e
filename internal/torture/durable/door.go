//go:build linux

package main

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

	"github.com/tickslot/tickslot/durable"
)

// A door is a process's way to the database.
type door struct {
	store *durable.Store
	pool  *pgxpool.Pool // nil: it is SQLite
	db    *sql.DB
	close func()
}

// A transaction is one of the application's.
type transaction struct {
	durable.Tx
	commit   func(context.Context) error
	rollback func(context.Context)
}

func open(way Way) (*door, error) {
	if !strings.HasPrefix(way.DSN, "postgres:") {
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
	db := stdlib.OpenDBFromPool(pool)
	return &door{store: durable.Postgres(pool), pool: pool, db: db, close: func() { db.Close(); pool.Close() }}, nil
}

func openFile(path string) (*door, error) {
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
	return &door{store: durable.SQLite(db), db: db, close: func() { db.Close() }}, nil
}

// begin begins a transaction: of pgx, or of database/sql.
func (d *door) begin(ctx context.Context, native bool) (*transaction, error) {
	if d.pool != nil && native {
		tx, err := d.pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		return &transaction{durable.PgxTx(tx), tx.Commit, func(ctx context.Context) { _ = tx.Rollback(ctx) }}, nil
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &transaction{durable.SQLTx(tx), func(context.Context) error { return tx.Commit() },
		func(context.Context) { _ = tx.Rollback() }}, nil
}
