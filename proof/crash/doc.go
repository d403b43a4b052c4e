// Package crash kills processes that use an outbox, with SIGKILL, before and after every statement
// that they execute: producers, relays and receivers, on SQLite, Postgres and MariaDB. It attacks
// I15. Afterwards the database must show that no committed message is lost, no message of a rolled
// back transaction was delivered, no effect is repeated, and each key is in order. The same must
// hold after two relays have delivered at once because the network of the first one was cut.
//
// The package contains only tests.
package crash
