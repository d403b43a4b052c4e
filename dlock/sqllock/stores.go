package sqllock

import (
	"context"
	"database/sql"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/mysql"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/postgres"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/sqlite"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/sqlserver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Driver executes the statements of a store on Postgres. Postgres uses database/sql. Package
// pgxlock implements one with pgx.
type Driver interface {
	// QueryRow executes a statement that returns one row, and copies its columns to dest. It
	// returns when ctx ends, even if the server does not answer.
	QueryRow(ctx context.Context, query string, args []any, dest ...any) error
	// QueryRowAlone is like QueryRow, but uses a new READ COMMITTED transaction whose
	// statement_timeout is ctx's remaining time. It is called if the role or the database has other
	// settings.
	QueryRowAlone(ctx context.Context, query string, args []any, dest ...any) error
	// WithDB calls do with a *sql.DB on the same connections, for Migrate.
	WithDB(do func(*sql.DB) error) error
	// Close closes the connections that the driver opened itself.
	Close() error
}

// Postgres returns a store on Postgres 13 or newer, with any driver for database/sql. It does not
// call the server. Check reports faults of the options; dlock.NewSession and timer.New call it.
//
// Every operation is one statement. With pgx, it is one round trip once the connection has prepared
// the statement. If the connection was idle for a second, it takes one more, because pgx checks
// whether the connection is alive (stdlib.OptionShouldPing). With package pgxlock, it is always
// one.
//
// Behind a PgBouncer in transaction mode, add default_query_exec_mode=exec to pgx's URL. Always add
// connect_timeout=2. Otherwise a connection attempt without an answer occupies a place in the pool
// for minutes after the network is back.
//
// Give the store its own *sql.DB. If it shares one with the application, and the application uses
// all connections, heartbeats wait and leases are lost.
func Postgres(db *sql.DB, opts Options) *Store {
	d, err := store.NewPool(db)
	if err != nil {
		return &Store{fault: err}
	}
	return PostgresOn(d, opts)
}

// PostgresOn is like Postgres, but uses another driver than database/sql. If d is a driver.Checker,
// the store's Check also reports its faults.
func PostgresOn(d Driver, opts Options) *Store {
	return newStore(sqlkit.Postgres, opts, func(t store.Table) (store.Database, error) {
		if c, ok := d.(driver.Checker); ok {
			if err := c.Check(); err != nil {
				return nil, err
			}
		}
		return postgres.New(d, t), nil
	})
}

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server. Check reports faults of the options; dlock.NewSession and timer.New
// call it.
//
//	// with go-sql-driver/mysql
//	db, err := sql.Open("mysql", "user:password@tcp(db.example.org)/shop?interpolateParams=true")
//	store := sqllock.MySQL(db, sqllock.Options{})
//	err = store.Migrate(ctx)
//
// Every operation calls one stored procedure, which Migrate creates. So no client can stop in the
// middle of a transaction and keep a row locked. With interpolateParams=true, a call is one round
// trip. Otherwise it is two, because the driver prepares each call. Databases with MySQL's protocol
// but without stored procedures do not work.
//
// Grants and updates of one name run one after the other, each with a commit. The release of a
// Succeeded grant waits for the grant in progress and for other such releases. Refusals, extensions
// and other releases do not wait.
//
// If another session has locked a row, only the row's slot is affected: the acquire takes another
// slot, or the outcome for that lease is unknown. If no other slot is free, or the row of the name
// (slot -1) is locked, an acquire retries for nine tenths of the time that its context leaves. It
// then returns an error that says so and matches driver.ErrFault. Some locks cannot be skipped: a
// locked gap, when a slot is used for the first time, and a lock of the whole table (LOCK TABLES,
// ALTER TABLE, mysqldump without --single-transaction). The store waits for them for at most a
// minute and is down meanwhile, so give the table its own database.
//
// Also add timeout=2s. Otherwise a connection attempt without an answer occupies a place in the
// pool for minutes after the network is back.
//
// Give the store its own *sql.DB. If it shares one with the application, and the application uses
// all connections, heartbeats wait and leases are lost.
//
// Leases survive a crash of the server's machine with innodb_flush_log_at_trx_commit=1 and, if
// there is a binary log, sync_binlog=1. Audit warns of other values. A replica that takes over
// without the last transactions has lost those leases, as with any asynchronous replication. All
// hosts must use the same primary, even with Galera or group replication, because another node may
// not know of a release or extension yet.
func MySQL(db *sql.DB, opts Options) *Store {
	return newStore(sqlkit.MySQL, opts, func(t store.Table) (store.Database, error) {
		d, err := store.NewPool(db)
		if err != nil {
			return nil, err
		}
		return mysql.New(d, t), nil
	})
}

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file. Check reports
// faults of the options; dlock.NewSession and timer.New call it.
//
//	// with modernc.org/sqlite
//	db, err := sql.Open("sqlite", "file:/var/lib/shop/locks.db?_pragma=synchronous(normal)")
//	db.SetMaxOpenConns(4)
//	store := sqllock.SQLite(db, sqllock.Options{})
//	err = store.Migrate(ctx)
//
// Its promises hold for processes that open the same file on the same machine. Never put the file
// on a network file system, or on a volume that is shared with another kernel, such as a virtual
// machine's. SQLite's locks do not work there, and two hosts may hold one slot.
//
// All processes must reach the file through the same directory. Mount this directory into a
// container, never the file itself (docker run -v /srv/locks:/data, not -v
// /srv/locks/locks.db:/data/locks.db; no subPath that names the file), and create no hard link to
// the file. A process that opens the file by another path has a separate write-ahead log there and
// does not see the commits of others. Migrate, Verify and every acquire refuse such a file with an
// error that matches driver.ErrSetup. If a link is created later, the next acquire notices it; a
// mount is noticed within 10 s. Leases that are held continue.
//
// A refused acquire is one statement and takes no lock. Every write is one short transaction. If
// another transaction is in progress, BEGIN is retried about every millisecond until the context
// ends. SQLite has one write lock per file:
//
//   - If a process is stopped within a transaction (SIGSTOP, a debugger), it keeps the lock. The
//     store is down for all others until the process runs again or is killed. The lock of a process
//     that dies is free immediately.
//   - If the application also uses the file, the store waits for the application's transactions and
//     is down while one of them takes longer than StoreTimeout. Give the store its own file.
//
// Migrate switches the file to journal_mode=WAL, in which readers and the writer do not block each
// other. The mode stays with the file. With WAL, synchronous=NORMAL is enough: a crash of the
// machine loses only leases whose holders died with it. Fences still grow, because they follow the
// clock. A tick that was claimed just before the crash may start again.
//
// Do not delete, replace or rename the file, or its -wal and -shm files, while a process uses it. A
// process that finds another file at the path switches to that file and loses its leases. Until its
// next heartbeat, they may be granted again from the new file. Do not open the file by other means
// in these processes (a second driver, os.Open): closing it again would drop the locks of the whole
// process.
//
// Each connection to an in-memory database has its own database, which ends with the connection. So
// call db.SetMaxOpenConns(1), and let nothing close idle connections. With cache=shared, the
// database ends with its last connection.
func SQLite(db *sql.DB, opts Options) *Store {
	return newStore(sqlkit.SQLite, opts, func(t store.Table) (store.Database, error) {
		d, err := store.NewPool(db)
		if err != nil {
			return nil, err
		}
		return sqlite.New(d, t), nil
	})
}

// SQLServer returns a store on Microsoft SQL Server 2017 or newer. It works with any driver for
// database/sql that numbers its parameters @p1, @p2 and so on, such as microsoft/go-mssqldb. It
// does not call the server. Check reports faults of the options; dlock.NewSession and timer.New
// call it.
//
// It is EXPERIMENTAL: it has not been run against a server. Its statements follow the
// documentation, and only their texts are tested. Run dlock/dlocktest on it before you rely on it,
// and report the result. It may change or be removed in any release.
//
// Every operation is one batch and one round trip. Every acquire, even a refused one, takes a lock
// on the name (sp_getapplock, owned by its transaction). A refusal writes nothing.
//
// Give the store its own *sql.DB. If it shares one with the application, and the application uses
// all connections, heartbeats wait and leases are lost.
func SQLServer(db *sql.DB, opts Options) *Store {
	return newStore(sqlkit.SQLServer, opts, func(t store.Table) (store.Database, error) {
		d, err := store.NewPool(db)
		if err != nil {
			return nil, err
		}
		return sqlserver.New(d, t), nil
	})
}
