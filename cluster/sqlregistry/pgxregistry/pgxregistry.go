// Package pgxregistry opens sqlregistry's store on Postgres with a *pgxpool.Pool.
//
//	registry := pgxregistry.New(pool, sqlregistry.Options{})
//	defer registry.Close()
//
// It opens a small pool of its own with the settings of yours. So the registry does not wait for
// the connections of the application, and the application does not wait for those of the registry.
// Each call is one message, a query of the simple protocol. It prepares nothing, takes one round
// trip, works through a PgBouncer in transaction mode, and holds no lock after it is cut off. The
// store keeps the promises of package sqlregistry.
package pgxregistry

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/internal/pgxkit"
)

// maxConns allows a heartbeat, a viewer's read and a sweep at the same time.
const maxConns = 3

// New returns a store on the database of pool. The caller closes both the store and pool. New does
// not call the server, so it works while the server is down.
//
// The store copies the settings of pool with these exceptions: it opens at most 3 connections. It
// sends statements with the simple protocol, and for that sets standard_conforming_strings to on
// and client_encoding to UTF8 after AfterConnect has run. It connects within 2 s, or within the
// connect_timeout of pool's URL if that is at most 10 s. It does not run the hooks for a connection
// that leaves or enters the pool.
func New(pool *pgxpool.Pool, opts sqlregistry.Options) *sqlregistry.Store {
	if pool == nil {
		return sqlregistry.PostgresOn(sqlregistry.Pool{Fault: errors.New("no pool: pass a *pgxpool.Pool")}, opts)
	}
	config := pgxkit.OwnPool(pool, maxConns, "tickslot registry")
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) { return pgxkit.IsAlive(conn), nil }
	config.AfterRelease = func(conn *pgx.Conn) bool { pgxkit.Used(conn); return true }
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	for name, value := range settings {
		config.ConnConfig.RuntimeParams[name] = value
	}
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		return set(ctx, conn)
	}
	own, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return sqlregistry.PostgresOn(sqlregistry.Pool{Fault: err}, opts)
	}
	db := stdlib.OpenDBFromPool(own, stdlib.OptionShouldPing(
		func(context.Context, stdlib.ShouldPingParams) bool { return false }))
	return sqlregistry.PostgresOn(sqlregistry.Pool{DB: db, Close: func() error {
		err := db.Close()
		own.Close()
		return err
	}}, opts)
}

// settings are the session settings that the simple protocol of pgx needs.
var settings = map[string]string{"standard_conforming_strings": "on", "client_encoding": "UTF8"}

// set restores the settings that the application's AfterConnect has changed.
func set(ctx context.Context, conn *pgx.Conn) error {
	for name, value := range settings {
		if conn.PgConn().ParameterStatus(name) == value {
			continue
		}
		if _, err := conn.Exec(ctx, "SET "+name+" = "+value); err != nil {
			return err
		}
	}
	return nil
}
