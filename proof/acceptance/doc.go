// Package acceptance tests an operator's question: on which hosts does this run right now? Three
// processes share a store and a registry, on Redis, Postgres or a SQLite file, and answer over
// HTTP. Meanwhile one of them is killed, paused or cut off, or the store does not answer. The tests
// attack I16, and the documented rights.
//
// The package contains only tests. They use real time and leases of two seconds.
package acceptance
