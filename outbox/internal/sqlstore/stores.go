package sqlstore

import (
	"database/sql"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Postgres returns a store on Postgres 13 or newer, in a database with the encoding UTF8. It does
// not call the server.
//
// Each call is one statement, and with pgx one round trip once the connection has prepared it; Due
// is some more while a long queue, or what was requeued, is in its way, and Requeue is two.
func Postgres(pool Pool, opts Options) (*Store, error) { return newStore(sqlkit.Postgres, pool, opts) }

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server.
//
// A read is one statement: one round trip with interpolateParams=true (go-sql-driver/mysql), two
// without it. Due takes a few more while a long queue, or what was requeued, is in its way. Mark
// takes six round trips, for its transaction. Sessions have to commit by themselves
// (autocommit=1, the default).
//
// Nothing that a relay does all the time waits for a row that another session keeps locked. Other
// calls can, and a driver that gives up a call closes the connection, but a server that waits for a
// lock does not notice that. MariaDB therefore gets the limit of the call with each statement.
// MySQL has no such limit for statements that write: one that waits for a locked row goes on for as
// long as innodb_lock_wait_timeout of the server says, 50 s by default.
func MySQL(db *sql.DB, opts Options) (*Store, error) {
	return newStore(sqlkit.MySQL, Pool{DB: db}, opts)
}

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file.
//
// The file is that of the application, whose transactions append messages. SQLite has one write
// lock per file: a call that finds it taken tries again about every millisecond, until its context
// ends.
func SQLite(db *sql.DB, opts Options) (*Store, error) {
	return newStore(sqlkit.SQLite, Pool{DB: db}, opts)
}

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql
// that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It does not call
// the server.
//
// It is EXPERIMENTAL: it has never been run against a server. Its statements follow the
// documentation, and only their texts are tested. Run package storetest on it before you rely on
// it, and tell us. It may change or be removed in any release.
func SQLServer(db *sql.DB, opts Options) (*Store, error) {
	return newStore(sqlkit.SQLServer, Pool{DB: db}, opts)
}
