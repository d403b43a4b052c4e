// Package sqliteservice assembles a service.Service on a SQLite file, for the processes of one
// machine. It works with any driver for database/sql, and links none.
//
//	db, err := sql.Open("sqlite", "file:app.db?_txlock=immediate&_pragma=busy_timeout(5000)")
//	…
//	svc, err := sqliteservice.New(db, service.Config{}, timers...)
//	…
//	return svc.Run(ctx, tickslot.Server(server))
//
// InTx commits a change to your tables, a run and a message together, or none of them.
package sqliteservice

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/timer"
)

// A Service is a service.Service on a SQLite file, with transactions.
type Service struct {
	*service.Service
	db *sql.DB
}

// New assembles a service on the file of db, or returns every fault of the settings. It does not
// open the file. You remain the owner of db: close it after Run has returned.
//
// All parts take their connections from db. Allow at least four more than your own code uses at the
// same time (db.SetMaxOpenConns), or leases cannot be renewed. Keep transactions short, because
// SQLite has one writer at a time. Begin them with BEGIN IMMEDIATE, as above. Otherwise SQLite
// rejects a transaction as locked if it reads before it writes and another connection writes in
// between. Config.Schema must be "".
func New(db *sql.DB, config service.Config, timers ...timer.Timer) (*Service, error) {
	if db == nil {
		return nil, errors.New("sqliteservice: there is no database: pass a *sql.DB")
	}
	if config.Schema != "" {
		return nil, fmt.Errorf("sqliteservice: Config.Schema: %.60q: SQLite has none", config.Schema)
	}
	stores := service.Stores{
		Locks:    sqllock.SQLite(db, sqllock.Options{TableName: config.TableName("locks")}),
		Registry: sqlregistry.SQLite(db, sqlregistry.Options{TableName: config.TableName("registry")}),
	}
	if !config.TimersOnly {
		stores.Runs = durable.SQLite(db, durable.Options{TableName: config.TableName("durable")})
		stores.Outbox = outbox.SQLite(db, outbox.Options{TableName: config.TableName("outbox")})
	}
	s, err := service.New(stores, config, timers...)
	if err != nil {
		return nil, err
	}
	return &Service{s, db}, nil
}

// A Tx is the transaction of InTx: a *sql.Tx for your own statements that also queues runs and
// messages. Use it only on the goroutine of the function, and only until the function returns.
type Tx struct {
	*sql.Tx
	*service.Queue
}

// Commit returns service.ErrCommitted: InTx commits.
func (Tx) Commit() error { return service.ErrCommitted }

// Rollback returns service.ErrCommitted: return an error from the function instead.
func (Tx) Rollback() error { return service.ErrCommitted }

// InTx calls f in a transaction. If f returns nil, InTx commits and wakes workers and relays of
// this process to look for what was queued:
//
//	err := svc.InTx(ctx, func(tx sqliteservice.Tx) error {
//		if _, err := tx.ExecContext(ctx, `INSERT INTO invoice (number) VALUES (?)`, number); err != nil {
//			return err
//		}
//		_, err := tx.Append(ctx, outbox.Message{ID: outbox.RandomID(), Topic: "invoice.created", Payload: text})
//		return err
//	})
//
// If f returns an error, panics, or returns after ctx has ended, InTx rolls the transaction back. A
// panic in f propagates to the caller. InTx does not repeat f. Workers and relays of other
// processes find what was queued within their PollInterval.
func (s *Service) InTx(ctx context.Context, f func(tx Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqliteservice: begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // no effect after a commit
	queue := s.NewQueue(durable.SQLTx(tx), outbox.SQLTx(tx))
	if err := f(Tx{tx, queue}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqliteservice: rolled back: %w", context.Cause(ctx))
	}
	defer queue.Notify() // even after an error of the commit, which may have succeeded
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqliteservice: commit: %w", err)
	}
	return nil
}
