package sqlstore

import (
	"database/sql"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Postgres returns a store on Postgres 13 or newer, in a database with the encoding UTF8. It does
// not call the server.
//
// Each call is one statement, which with pgx takes one round trip once the connection has prepared
// it. Due takes a few more while it has to search past a long queue or past requeued messages.
// Requeue takes two.
func Postgres(pool Pool, opts Options) (*Store, error) { return newStore(sqlkit.Postgres, pool, opts) }

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server.
//
// A read is one statement, which takes one round trip with interpolateParams=true
// (go-sql-driver/mysql) and two without it. Due takes a few more while it has to search past a long
// queue or past requeued messages. Mark takes six round trips for its transaction. Sessions must
// have autocommit=1, which is the default.
//
// The regular calls of a relay never wait for a row that another session keeps locked. Other calls
// may wait. A driver that gives up a call closes the connection, but a server that waits for a lock
// does not notice. So each statement for MariaDB includes the time limit of the call. MySQL has no
// such limit for statements that write. A statement that waits for a locked row continues to wait
// for the server's innodb_lock_wait_timeout, which is 50 s by default.
func MySQL(db *sql.DB, opts Options) (*Store, error) {
	return newStore(sqlkit.MySQL, Pool{DB: db}, opts)
}

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer and works with any driver for database/sql. SQLite does not open the file.
//
// The outbox shares the application's file, because the application's transactions append messages.
// SQLite has one write lock per file. A call that finds it taken tries again about every
// millisecond until its context ends.
func SQLite(db *sql.DB, opts Options) (*Store, error) {
	return newStore(sqlkit.SQLite, Pool{DB: db}, opts)
}

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql
// that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It does not call
// the server.
//
// SQLServer is EXPERIMENTAL: it has never been run against a server. Its statements follow the
// documentation, and only their texts are tested. Run package storetest on it before you rely on
// it, and tell us the results. It may change or be removed in any release.
func SQLServer(db *sql.DB, opts Options) (*Store, error) {
	return newStore(sqlkit.SQLServer, Pool{DB: db}, opts)
}
