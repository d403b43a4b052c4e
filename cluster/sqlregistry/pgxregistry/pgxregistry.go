// Package pgxregistry is sqlregistry's store on Postgres for a *pgxpool.Pool.
//
//	registry := pgxregistry.New(pool, sqlregistry.Options{})
//	defer registry.Close()
//
// It opens a small pool of its own with the settings of yours, so neither the registry nor an
// application that uses all its connections waits for the other. Each call is one message, a query
// of the simple protocol: it prepares nothing, takes one round trip, works through a PgBouncer in
// transaction mode, and leaves nothing locked when it is cut off in the middle. It keeps the
// promises of package sqlregistry.
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

// maxConns is enough for a heartbeat, a read for viewers and a sweep at a time.
const maxConns = 3

// New returns a store on the database of pool, which the caller closes. It does not call the
// server, so it works while the server is down.
//
// It copies the settings of pool except: the number of connections (at most 3), how statements are
// sent, with the settings of the session that this needs (standard_conforming_strings on, and the
// client_encoding UTF8, whatever AfterConnect has set), the time to connect (2 s, or that of pool
// if it is at most 10 s: connect_timeout in its URL), and the hooks that run when a connection
// leaves or enters the pool.
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

// settings are the settings of a session that pgx's simple protocol needs.
var settings = map[string]string{"standard_conforming_strings": "on", "client_encoding": "UTF8"}

// set restores settings that the application's AfterConnect has changed.
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
