// Command durable tortures durable runs, to attack I14. Operating system processes are the workers,
// with a real database, and a nemesis breaks both.
//
//	go run -tags sqlite ./proof/torture/durable -store postgres,pgbouncer,sqlite -for 12m -seed 7
//
// Each worker is another process of this program, with a real durable.Worker behind its own fault
// proxy (SQLite has none). Its handlers succeed, fail, panic, work for longer than their leases,
// and ignore their contexts. They log when they were called and returned, and when Run.Valid was
// true. Clients trigger runs in transactions, roll some of them back, and log the outcome of each.
// A Postgres standby that lacks the last seconds is promoted: only these may be lost or repeated. A
// watch reads the database. When all faults are over and all runs have ended, package owners, which
// knows nothing of the library, checks the logs and the database. The last line of the output is
// JSON. The exit status is 1 if a promise was broken, or if too little happened.
//
// The seed determines the target, time and duration of each fault (-plan prints them), but not the
// consequences. The program cannot simulate power loss, or set clocks.
package main
