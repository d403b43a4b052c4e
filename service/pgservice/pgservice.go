// Package pgservice assembles a service.Service on Postgres, for a *pgxpool.Pool:
//
//	svc, err := pgservice.New(pool, service.Config{Environment: "production"}, timers...)
//	…
//	return svc.Run(ctx, tickslot.Server(server))
//
// InTx commits a change to your tables, a run and a message together, or none of them.
package pgservice

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/timer"
)

// A Service is a service.Service on Postgres, with transactions.
type Service struct {
	*service.Service
	pool *pgxpool.Pool
}

// New assembles a service on the database of pool, or returns every fault of the settings. It does
// not call the server. You remain the owner of pool: close it after Run has returned.
//
// The stores open their own connections on demand, with the settings of pool: at most 4 for locks,
// 3 for the registry, 5 for durable runs and 9 for the outbox. So an application that exhausts its
// pool loses no lease.
func New(pool *pgxpool.Pool, config service.Config, timers ...timer.Timer) (*Service, error) {
	schema := config.Schema
	stores := service.Stores{
		Locks:    pgxlock.New(pool, sqllock.Options{TableName: config.TableName("locks"), Schema: schema}),
		Registry: pgxregistry.New(pool, sqlregistry.Options{TableName: config.TableName("registry"), Schema: schema}),
	}
	if !config.TimersOnly {
		stores.Runs = pgxdurable.New(pool, durable.Options{TableName: config.TableName("durable"), Schema: schema})
		stores.Outbox = pgxoutbox.New(pool, outbox.Options{TableName: config.TableName("outbox"), Schema: schema})
	}
	s, err := service.New(stores, config, timers...)
	if err != nil {
		return nil, err
	}
	return &Service{s, pool}, nil
}

// A Tx is the transaction of InTx: a pgx.Tx for your own statements that also queues runs and
// messages. Use it only on the goroutine of the function, and only until the function returns.
type Tx struct {
	pgx.Tx
	*service.Queue
}

// Commit returns service.ErrCommitted: InTx commits.
func (Tx) Commit(context.Context) error { return service.ErrCommitted }

// Rollback returns service.ErrCommitted: return an error from the function instead.
func (Tx) Rollback(context.Context) error { return service.ErrCommitted }

// InTx calls f in a transaction of the pool, with the database's default isolation level. If f
// returns nil, InTx commits and wakes workers and relays to look for what was queued:
//
//	err := svc.InTx(ctx, func(tx pgservice.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO invoice (number) VALUES ($1)`, number); err != nil {
//			return err
//		}
//		_, err := tx.Append(ctx, outbox.Message{ID: outbox.RandomID(), Topic: "invoice.created", Payload: text})
//		return err
//	})
//
// If f returns an error, panics, or returns after ctx has ended, InTx rolls the transaction back. A
// panic in f propagates to the caller. InTx does not repeat f: after a serialization error
// (SQLSTATE 40001 or 40P01), call InTx again. If the commit itself fails, the error says so. The
// server may then have committed, because only its answer may have been lost.
func (s *Service) InTx(ctx context.Context, f func(tx Tx) error) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("pgservice: begin: %w", err)
	}
	// After a commit this does nothing. It must reach the server even if ctx has ended.
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // on an error, the connection is closed
	queue := s.NewQueue(pgxdurable.Tx(tx), pgxoutbox.Tx(tx))
	if err := f(Tx{tx, queue}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgservice: rolled back: %w", context.Cause(ctx))
	}
	if tx.Conn().PgConn().TxStatus() == 'I' {
		return fmt.Errorf("pgservice: %w", service.ErrCommitted)
	}
	defer queue.Notify() // even if the answer was lost
	if err := tx.Commit(ctx); errors.Is(err, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("pgservice: rolled back, because a statement had failed: %w", err)
	} else if err != nil {
		return fmt.Errorf("pgservice: commit failed, but the server may have committed: %w", err)
	}
	return nil
}
