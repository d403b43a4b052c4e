// Package crash kills processes that use an outbox, with SIGKILL, before and after every statement
// that they execute: producers, relays and receivers, on SQLite, Postgres and MariaDB. It attacks
// I15. The database then has to show that no committed message is lost, none of a transaction that
// was rolled back was delivered, no effect is doubled, and the order of each key is kept. It has to
// show the same after two relays have delivered at once, because the network of the first one was
// cut.
//
// All of it is in the tests.
package crash
