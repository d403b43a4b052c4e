// Package sqltest runs private Postgres, MariaDB (or MySQL), and PgBouncer servers for this
// module's tests, like package servertest.
//
// They listen on 127.0.0.1 only. Committed data survives a crash of the server, as in production,
// so a test may kill a server and check its data.
//
// The core (StartPostgres, StartMariaDB, StartPgBouncer) needs no *testing.T, so programs can use
// it too. Functions that take one are for tests, and skip them if the server is not installed.
package sqltest
