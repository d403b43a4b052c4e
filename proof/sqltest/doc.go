// Package sqltest runs private Postgres, MariaDB (or MySQL), and PgBouncer servers for tests, in
// the manner of package servertest. It is no API: for our own tests.
//
// They listen on 127.0.0.1 only. What is committed survives the server, as in production, so a test
// may kill a server and check what it has kept.
//
// The core (StartPostgres, StartMariaDB, StartPgBouncer) needs no *testing.T, so
// that programs can use it too. What takes one is for tests, and skips
// them on machines that lack the server.
package sqltest
