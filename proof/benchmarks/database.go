package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/proof/sqltest"
)

// A pgDatabase is a database in the run's Postgres for one fleet.
type pgDatabase struct {
	server *postgresServer
	name   string
	admin  *pgxpool.Pool
	pools  []*pgxpool.Pool
	wire   *sqltest.CountingProxy // nil if not counted
}

var databases atomic.Int64

// newDatabase creates an empty database. If counted, all pools go through a proxy, which adds
// latency.
func (p *postgresServer) newDatabase(counted bool) (*pgDatabase, error) {
	d := &pgDatabase{server: p, name: fmt.Sprint("fleet", databases.Add(1))}
	_, err := p.admin.Exec(ctx, "CREATE DATABASE "+d.name)
	if err != nil {
		return nil, err
	}
	if d.admin, err = d.newPool(p.Addr(), 2); err == nil && counted {
		d.wire, err = p.StartCountingProxy()
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (p *pgDatabase) newPool(addr string, size int) (*pgxpool.Pool, error) {
	dsn := strings.Replace(p.server.DSN("", "", p.name), p.server.Addr(), addr, 1)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(size)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		p.pools = append(p.pools, pool)
	}
	return pool, err
}

// workerConnections is the size of a worker's or client's pool.
const workerConnections = 10

// pool opens a pool for a worker, as a separate process would.
func (p *pgDatabase) pool() (*pgxpool.Pool, error) {
	addr := p.server.Addr()
	if p.wire != nil {
		addr = p.wire.Addr()
	}
	return p.newPool(addr, workerConnections)
}

func (p *pgDatabase) settle() error {
	for _, statement := range []string{"ANALYZE", "CHECKPOINT"} {
		if _, err := p.admin.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (p *pgDatabase) count(query string) (n int, err error) {
	err = p.admin.QueryRow(ctx, query).Scan(&n)
	return n, err
}

var errUncounted = errors.New("nobody counts its statements")

func (p *pgDatabase) asked() (statements, trips int64, err error) {
	if p.wire == nil {
		return 0, 0, errUncounted
	}
	return p.wire.Statements(), p.wire.RoundTrips(), nil
}

// hold begins a transaction that takes a snapshot and stays idle, like a forgotten reporting
// session.
func (p *pgDatabase) hold() (release func() error, err error) {
	tx, err := p.admin.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM pg_class"); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func() error { return tx.Rollback(ctx) }, nil
}

func (p *pgDatabase) dead() (int, error) {
	return p.count("SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables")
}

func (p *pgDatabase) close() error {
	for _, pool := range p.pools {
		pool.Close()
	}
	if p.wire != nil {
		p.wire.Close()
	}
	_, err := p.server.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+p.name+" WITH (FORCE)")
	return err
}
