package sqlregistry

import (
	"database/sql"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Postgres returns a store on Postgres 13 or newer, in a database with the encoding UTF8, with any
// driver for database/sql. It does not call the server.
//
// Each call is one statement. With pgx it takes one round trip once the connection has prepared the
// statement. On a connection that was idle for a second it takes one more, because pgx first checks
// that the connection is alive (stdlib.OptionShouldPing). Behind a PgBouncer in transaction mode,
// add default_query_exec_mode=exec or simple_protocol to pgx's URL, so that nothing is prepared.
//
// With a *pgxpool.Pool use package pgxregistry. Give a *sql.DB to this store alone, so that neither
// the store nor the application waits for the other's connections. sql.Open("pgx", url) stops
// connecting when the call ends (cluster.Config.StoreTimeout). If connecting takes longer than
// that, no call ever reaches the server. A pgxpool.Pool continues to connect, and the next call
// uses that connection.
func Postgres(db *sql.DB, opts Options) *Store { return newStore(sqlkit.Postgres, db, opts) }

// A Pool holds the connections of a store on Postgres. The store closes them.
type Pool struct {
	DB    *sql.DB
	Close func() error // closes DB and the pool below it
	Fault error        // why there is no DB
}

// PostgresOn is like Postgres, but the store owns the pool: Close closes it. Package pgxregistry
// makes one.
func PostgresOn(pool Pool, opts Options) *Store { return newOn(sqlkit.Postgres, pool, opts) }

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server.
//
// Each call is one statement: one round trip with interpolateParams=true (go-sql-driver/mysql),
// otherwise two, because the driver prepares each statement. Sessions must commit automatically
// (autocommit=1, the default).
//
// A driver that gives up a call closes the connection, but a server that waits for a lock does not
// notice that. So each statement tells MariaDB how long it may take. MySQL has no such limit for
// statements that write: a statement that waits for a locked row continues until the server's
// innodb_lock_wait_timeout, 50 s by default.
func MySQL(db *sql.DB, opts Options) *Store { return newStore(sqlkit.MySQL, db, opts) }

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file.
//
// The file may be shared with the locks or with the application. SQLite has one write lock per
// file. A call that finds it taken tries again about every millisecond until its context ends. So a
// long transaction of the application delays the registry, and a batch of the registry delays
// others by a few milliseconds.
//
// Each connection to an in-memory database has its own database, which ends with the connection:
// call db.SetMaxOpenConns(1). Never put the file on a network file system: see package sqllock.
func SQLite(db *sql.DB, opts Options) *Store { return newStore(sqlkit.SQLite, db, opts) }

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql
// that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It does not call
// the server.
//
// It is EXPERIMENTAL: it has not been run against a server. Its statements follow the
// documentation, and only their texts are tested. Run cluster/clustertest on it before you rely on
// it, and report the result. It may change or be removed in any release.
func SQLServer(db *sql.DB, opts Options) *Store { return newStore(sqlkit.SQLServer, db, opts) }
