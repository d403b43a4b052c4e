package sqllock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/mysql"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/postgres"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/sqlite"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/sqlserver"
)

// A Driver executes the statements of a store. It is database/sql, except for Postgres, where
// package pgxlock has one for pgx.
type Driver interface {
	// QueryRow executes a statement that returns one row, and puts its columns into dest. It
	// returns when ctx ends, whatever the server does.
	QueryRow(ctx context.Context, query string, args []any, dest ...any) error
	// Exec executes statements without arguments. On Postgres there may be several, which are then
	// one transaction.
	Exec(ctx context.Context, statements string) error
	// Close closes the connections that the driver opened itself.
	Close() error
}

// Postgres returns a store on Postgres 13 or newer, with any driver for database/sql. Every
// operation is one statement; with pgx it is one round trip once the connection has prepared it,
// and package pgxlock makes it always one. It does not call the server. Faults of the options are
// reported by Check, which dlock.NewSession and timer.New call.
//
// Behind a PgBouncer in transaction mode add default_query_exec_mode=exec to pgx's URL, and
// connect_timeout=2 everywhere: a dial that nobody answers would otherwise keep its place in the
// pool for minutes after the network is back.
//
// Give it a *sql.DB of its own: if it shares one with the application, and all its connections are
// in use, heartbeats wait, and leases are lost.
func Postgres(db *sql.DB, opts Options) *Store {
	d, err := dialect.NewPool(db)
	if err != nil {
		return &Store{fault: err}
	}
	return PostgresOn(d, opts)
}

// PostgresOn is Postgres on another driver than one for database/sql. If d is a dlock.Checker, the
// store's Check reports its faults, too.
func PostgresOn(d Driver, opts Options) *Store {
	return newStore(opts, func(t dialect.Table) (dialect.Database, error) {
		if c, ok := d.(dlock.Checker); ok {
			if err := c.Check(); err != nil {
				return nil, err
			}
		}
		return postgres.New(d, t), nil
	})
}

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server. Faults of the options are reported by Check, which dlock.NewSession
// and timer.New call.
//
//	db, err := sql.Open("mysql", "user:password@tcp(db.example.org:3306)/shop?interpolateParams=true") // go-sql-driver/mysql
//	lock := sqllock.MySQL(db, sqllock.Options{})
//	err = lock.Migrate(ctx)
//
// Every operation calls one stored procedure, which Migrate makes: no client can stop in the middle
// of a transaction and keep a row locked. With interpolateParams=true that is one round trip,
// without it two, because the driver prepares each call. Databases that only speak like MySQL, and
// have no stored procedures, will not do.
//
// Grants of one name, and updates of it, are made one after the other, each with a commit. A
// release that says that its work succeeded waits for the one that is just being made, or for
// another such release; refusals, extensions and other releases wait for nobody.
//
// A row that some other session has locked costs the slot that it is about and nothing else:
// another slot is granted, and of one lease it is unknown whether it was extended. If nothing else
// is free, or the row of the name (slot -1) is locked, an acquire asks again and again for nine
// tenths of the time that its context leaves, and then says so with an error that matches
// dlock.ErrFault. What cannot be passed over is waited for, at most a minute, and then for a second
// by what is left in the server: a locked gap, the first time that a slot is used, and the whole
// table (LOCK TABLES, ALTER TABLE, mysqldump without --single-transaction). The store is down
// meanwhile: give the table a database of its own.
//
// Add timeout=2s, too: a dial that nobody answers would otherwise keep its place in the pool for
// minutes after the network is back.
//
// Give it a *sql.DB of its own: if it shares one with the application, and all its connections are
// in use, heartbeats wait, and leases are lost.
//
// What a machine that crashes must not forget has to be on its disk:
// innodb_flush_log_at_trx_commit=1 and, where there is a binary log, sync_binlog=1. Audit warns of
// anything else. A replica that takes over without the last transactions has forgotten those
// leases, as with any asynchronous replication. All hosts have to reach the same primary, also in
// Galera or a group with several: another one may not have heard of a release yet, or of an
// extension when its clock says that the lease has ended.
func MySQL(db *sql.DB, opts Options) *Store {
	return newStore(opts, func(t dialect.Table) (dialect.Database, error) {
		d, err := dialect.NewPool(db)
		if err := errors.Join(err, mysql.CheckNames(t)); err != nil {
			return nil, err
		}
		return mysql.New(d, t), nil
	})
}

// SQLite returns a store in a SQLite file, for the processes of one machine: SQLite 3.38 or newer,
// any driver for database/sql. It does not open the file. Faults of the options are reported by
// Check, which dlock.NewSession and timer.New call.
//
//	db, err := sql.Open("sqlite", "file:/var/lib/shop/locks.db?_pragma=synchronous(normal)") // with modernc.org/sqlite
//	db.SetMaxOpenConns(4)
//	lock := sqllock.SQLite(db, sqllock.Options{})
//	err = lock.Migrate(ctx)
//
// What it promises, it promises to processes that open the same file on the same machine. Never put
// the file on a network file system, nor on a volume that is shared with another kernel, such as
// that of a virtual machine: locks do not work there, and two may hold one slot.
//
// All have to reach the file by the path of one folder. Mount that folder into a container, never
// the file itself (docker run -v /srv/locks:/data, not -v /srv/locks/locks.db:/data/locks.db; no
// subPath that names the file), and make no hard link to it: who opens the file by another path has
// a write-ahead log of his own there, and sees nothing of what others commit. Migrate, Verify and
// every acquire refuse such a file, with an error that matches dlock.ErrSetup; a link that is made
// later is noticed by the next acquire, a mount within 10 s. Leases that are held go on.
//
// An acquire that finds nothing to grant is one statement, which takes no lock. Whatever writes is
// one short transaction. Whoever finds another one going on tries to begin his about every
// millisecond, until the context ends. SQLite has one lock for all that is written to a file:
//
//   - A process that is stopped (SIGSTOP, a debugger) within a transaction keeps the lock. Until it
//     goes on or is killed the store is down for all the others. When a process dies, its lock is
//     free at once.
//   - In a file that is the application's, too, the store waits for the application's transactions,
//     and is down while one of them takes longer than a StoreTimeout. Give the store a file of its
//     own.
//
// Migrate switches the file to journal_mode=WAL, in which those who read and the one who writes do
// not block each other; it stays with the file. There synchronous=NORMAL is enough: what a crash of
// the machine undoes are leases whose holders have died with it. Fences go on by the clock; a tick
// that was claimed just before may start again.
//
// Do not delete, replace or rename the file, or its -wal and -shm, while a process uses it. A
// process that finds another file at the path than the one it has open goes over to that, and finds
// its leases lost; until its next heartbeat they may have been granted again from the new file. Do
// not open the file by other means in these processes (a second driver, os.Open): closing it again
// would undo the locks of the whole process.
//
// A database in memory is one for each connection, and goes with it: call db.SetMaxOpenConns(1),
// and nothing that closes idle connections. With cache=shared it goes with the last one.
func SQLite(db *sql.DB, opts Options) *Store {
	return newStore(opts, func(t dialect.Table) (dialect.Database, error) {
		d, err := dialect.NewPool(db)
		if err == nil {
			err = sqlite.CheckNames(t)
		}
		if err != nil {
			return nil, err
		}
		return sqlite.New(d, t), nil
	})
}

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql
// that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It does not call
// the server. Faults of the options are reported by Check, which dlock.NewSession and timer.New
// call.
//
// It is EXPERIMENTAL: it has not been run against a server. Its statements are written from the
// documentation and tested as texts only. Run dlock/dlocktest on it before you rely on it, and tell
// us. It may change or go in any release.
//
// Every operation is one batch, and one round trip. An acquire takes a lock on the name
// (sp_getapplock, owned by its transaction) also when it is refused; it writes nothing then.
//
// Give it a *sql.DB of its own: if it shares one with the application, and all its connections are
// in use, heartbeats wait, and leases are lost.
func SQLServer(db *sql.DB, opts Options) *Store {
	return newStore(opts, func(t dialect.Table) (dialect.Database, error) {
		d, err := dialect.NewPool(db)
		if err != nil {
			return nil, err
		}
		return sqlserver.New(d, t), nil
	})
}
